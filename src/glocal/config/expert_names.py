"""Expert names: `D-last`, `A-1`, `A-middle`, `D-(12+1)`, `R-last`, `T`, `S`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glocal.errors import ConfigError

__all__ = [
    "OPEN_EXPERTS",
    "SPARSE_EXPERT",
    "TEACHER",
    "ExpertSpec",
    "check_expert_names",
    "parse_experts",
]

OPEN_EXPERTS = ("auto",)  # of a recipe that leaves them to the plan

TEACHER, SPARSE_EXPERT = "T", "S"  # read no layer of the encoder

_NAMED: dict[str, Callable[[int], int]] = {
    "last": lambda n: n,
    "middle": lambda n: n // 2,
    "first": lambda n: min(1, n),
}
_LAYER = rf"(?:\d+|{'|'.join(_NAMED)})"
_PATTERN = re.compile(
    rf"(?P<kind>[DAR])-(?:(?P<one>{_LAYER})|\((?P<many>{_LAYER}(?:\+{_LAYER})+)\))"
)


@dataclass(frozen=True)
class ExpertSpec:
    """One expert of a recipe."""

    name: str
    kind: str  # D, A, R, T or S
    layers: tuple[int, ...]


def check_expert_names(names: Sequence[str]) -> None:
    """Refuse what would be wrong with any encoder; `auto` leaves the experts open.

    Raises:
        ConfigError: With every problem: an empty list, a repeated or malformed name.
    """
    problems = [] if tuple(names) == OPEN_EXPERTS else _problems(names)
    if problems:
        raise ConfigError(problems)


def parse_experts(names: Sequence[str], n_layers: int) -> list[ExpertSpec]:
    """Resolve expert names for an encoder of so many layers.

    Raises:
        ConfigError: With every problem: an empty list, a repeated or malformed name, a layer the
            encoder does not have.
    """
    problems = _problems(names)
    specs = [spec for name in names if (spec := _parse(name, n_layers, problems))]
    if problems:
        raise ConfigError(problems)
    return specs


def _problems(names: Sequence[str]) -> list[str]:
    """What is wrong with the names by themselves."""
    problems = [] if names else ["'experts' is empty; name at least one, such as D-last"]
    for name in names:
        match = _PATTERN.fullmatch(name)
        if match is None and name not in {TEACHER, SPARSE_EXPERT}:
            problems.append(
                f"expert '{name}' is not of the form D-n, A-n, R-n, D-(m+n), T or S, n a layer, "
                "`middle` or `last`"
            )
        elif match is not None and match["many"] and match["kind"] != "D":
            problems.append(f"expert '{name}': only document experts concatenate layers")
    for name in {n for n in names if list(names).count(n) > 1}:
        problems.append(f"expert '{name}' is listed more than once")
    return problems


def _parse(name: str, n_layers: int, problems: list[str]) -> ExpertSpec | None:
    """A name of the right form; None for another, which `_problems` tells of."""
    if name in {TEACHER, SPARSE_EXPERT}:
        return ExpertSpec(name, name, ())
    match = _PATTERN.fullmatch(name)
    if match is None:
        return None
    words = (match["many"] or match["one"]).split("+")
    layers = tuple(_layer(word, n_layers, name, problems) for word in words)
    return ExpertSpec(name, match["kind"], layers)


def _layer(word: str, n_layers: int, name: str, problems: list[str]) -> int:
    if word in _NAMED:
        return _NAMED[word](n_layers)
    if int(word) > n_layers:
        problems.append(
            f"expert '{name}': layer {word} does not exist; the encoder has layers 0 to {n_layers}"
        )
        return 0
    return int(word)
