"""Expert names: `D-last`, `A-1`, `A-middle`, `D-(12+1)`, `R-last`, `T`, `S`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from glocal.errors import ConfigError

__all__ = ["SPARSE_EXPERT", "TEACHER", "ExpertSpec", "parse_experts"]

TEACHER, SPARSE_EXPERT = "T", "S"  # read no layer of the encoder

_PATTERN = re.compile(r"(?P<kind>[DAR])-(?:(?P<one>\w+)|\((?P<many>\w+(?:\+\w+)+)\))")


@dataclass(frozen=True)
class ExpertSpec:
    """One expert of a recipe."""

    name: str
    kind: str  # D, A, R, T or S
    layers: tuple[int, ...]


def parse_experts(names: Sequence[str], n_layers: int) -> list[ExpertSpec]:
    """Resolve expert names for an encoder of so many layers.

    Raises:
        ConfigError: With every problem: an empty list, a repeated or malformed name, a layer the
            encoder does not have.
    """
    problems: list[str] = []
    if not names:
        problems.append("'experts' is empty; name at least one, such as D-last")
    specs = [spec for name in names if (spec := _parse(name, n_layers, problems))]
    for name in {n for n in names if list(names).count(n) > 1}:
        problems.append(f"expert '{name}' is listed more than once")
    if problems:
        raise ConfigError(problems)
    return specs


def _parse(name: str, n_layers: int, problems: list[str]) -> ExpertSpec | None:
    if name in {TEACHER, SPARSE_EXPERT}:
        return ExpertSpec(name, name, ())
    match = _PATTERN.fullmatch(name)
    if match is None:
        problems.append(
            f"expert '{name}' is not of the form D-n, A-n, R-n, D-(m+n), T or S, n a layer, "
            "`middle` or `last`"
        )
        return None
    words = (match["many"] or match["one"]).split("+")
    layers = tuple(_layer(word, n_layers, name, problems) for word in words)
    if match["kind"] != "D" and len(layers) > 1:
        problems.append(f"expert '{name}': only document experts concatenate layers")
    return ExpertSpec(name, match["kind"], layers)


def _layer(word: str, n_layers: int, name: str, problems: list[str]) -> int:
    named = {"last": n_layers, "middle": n_layers // 2, "first": min(1, n_layers)}
    if word in named:
        return named[word]
    if not word.isdigit() or int(word) > n_layers:
        problems.append(
            f"expert '{name}': layer {word} does not exist; the encoder has layers 0 to {n_layers}"
        )
        return 0
    return int(word)
