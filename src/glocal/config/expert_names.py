"""Expert names: `D-last`, `A-1`, `A-middle`, `D-(12+1)`, `D-(last-1+last)`, `R-last`, `T`, `S`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from glocal.errors import ConfigError

OPEN_EXPERTS = ("auto",)  # a recipe that leaves the choice of experts to the plan

TEACHER, SPARSE_EXPERT = "T", "S"  # read no layer of the encoder
ENCODER_KINDS = frozenset("DAR")  # read a layer of the encoder

_NAMED: dict[str, Callable[[int], int]] = {
    "last": lambda n: n,
    "middle": lambda n: n // 2,
    "first": lambda n: min(1, n),
}
_LAYER = rf"(?:\d+|last-\d+|{'|'.join(_NAMED)})"
_PATTERN = re.compile(
    rf"(?P<kind>[DAR])-(?:(?P<one>{_LAYER})|\((?P<many>{_LAYER}(?:\+{_LAYER})+)\))"
)


@dataclass(frozen=True)
class ExpertSpec:
    """One expert of a recipe."""

    name: str
    kind: str  # D, A, R, T or S
    layers: tuple[int, ...]


def expert_kinds(names: Iterable[str]) -> set[str]:
    """Return the kinds of the experts: D, A, R, T or S."""
    return {name[:1] for name in names}


def parse_experts(names: Sequence[str], n_layers: int) -> list[ExpertSpec]:
    """Return the experts with the layers they read in an encoder of `n_layers` layers.

    Raises:
        ConfigError: With every problem: an empty list, a repeated or malformed name, a layer the
            encoder does not have.
    """
    problems = expert_problems(names, n_layers)
    ConfigError.raise_any(problems)
    return [ExpertSpec(name, name[:1], tuple(_layers(name, n_layers))) for name in names]


def check_expert_names(names: Sequence[str]) -> None:
    """Refuse names that are wrong for any encoder; `auto` leaves the experts open.

    Raises:
        ConfigError: With every problem.
    """
    problems = [] if tuple(names) == OPEN_EXPERTS else expert_problems(names)
    ConfigError.raise_any(problems)


def expert_problems(names: Sequence[str], n_layers: int | None = None) -> list[str]:
    """Return the problems of expert names.

    Args:
        names: The experts of a recipe.
        n_layers: Layers of the encoder; layers are not checked without it.
    """
    problems = [] if names else ["'experts' is empty; name at least one, such as D-last"]
    for name in names:
        match = _PATTERN.fullmatch(name)
        if match is None and name not in {TEACHER, SPARSE_EXPERT}:
            problems.append(
                f"expert '{name}' is not of the form D-n, A-n, R-n, D-(m+n), T or S, where n is a "
                "layer, `middle` or `last`"
            )
        elif match is not None and match["many"] and match["kind"] != "D":
            problems.append(f"expert '{name}': only document experts concatenate layers")
        elif n_layers is not None:
            problems += [
                f"expert '{name}': layer {layer} does not exist; the encoder has layers 0 to "
                f"{n_layers}"
                for layer in _layers(name, n_layers)
                if layer > n_layers
            ]
    repeated = dict.fromkeys(n for n in names if list(names).count(n) > 1)
    return problems + [f"expert '{name}' is listed more than once" for name in repeated]


def _layers(name: str, n_layers: int) -> list[int]:
    match = _PATTERN.fullmatch(name)
    words = [] if match is None else (match["many"] or match["one"]).split("+")
    return [_layer(word, n_layers) for word in words]


def _layer(word: str, n_layers: int) -> int:
    if word.startswith("last-"):
        return max(0, n_layers - int(word.removeprefix("last-")))
    return _NAMED[word](n_layers) if word in _NAMED else int(word)
