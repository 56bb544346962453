"""The settings that are searched, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glocal.config import Recipe, recipe_to_mapping
from glocal.config.expert_names import ENCODER_KINDS, SPARSE_EXPERT, expert_kinds

Settings = Mapping[str, Any]  # dotted names of settings and their values


@dataclass(frozen=True)
class Range:
    """A number between two bounds.

    Args:
        key: Dotted name of the setting.
        low: Smallest value.
        high: Largest value.
        log: Whether factors matter, not differences.
        whole: Whether it is a whole number.
    """

    key: str
    low: float
    high: float
    log: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Choice:
    """One of several values.

    Args:
        key: Dotted name of the setting.
        values: The values.
    """

    key: str
    values: tuple[str, ...]


Searched = Range | Choice

# Settings of the words model; searching them trains no encoder.
WORDS: tuple[Searched, ...] = (
    Range("sparse.cost", 0.1, 10.0, log=True),
    Range("sparse.title_weight", 0.0, 1.5),
    Range("sparse.threshold", 0.01, 0.1, log=True),
    Range("sparse.min_pairs", 2, 6, whole=True),
    Range("sparse.beam", 5, 40, log=True, whole=True),
    Range("sparse.sample", 500, 8000, log=True, whole=True),
    Choice("sparse.pieces", ("auto", "on", "off")),
    Choice("sparse.negatives", ("auto", "matched", "random")),
)
NAMES: tuple[Searched, ...] = (Range("sparse.name_weight", 0.0, 3.0),)
# Settings of the network; every trial trains it.
NETWORK: tuple[Searched, ...] = (
    Range("train.rates.encoder", 2e-5, 4e-4, log=True),
    Range("train.rates.classifier", 4e-4, 8e-3, log=True),
    Range("train.rates.queries", 4e-4, 8e-3, log=True),
    Range("train.rates.mlp", 4e-4, 8e-3, log=True),
)


def words_space(recipe: Recipe, *, has_names: bool) -> tuple[Searched, ...]:
    """Return the searched settings of a recipe's words model; none without the expert `S`."""
    if SPARSE_EXPERT not in recipe.experts:
        return ()
    language = recipe.sparse.stems
    stems = () if language == "off" else (Choice("sparse.stems", ("off", language)),)
    return (*WORDS, *stems, *(NAMES if has_names else ()))


def network_space(recipe: Recipe) -> tuple[Searched, ...]:
    """Return the searched settings of a recipe's network; none without an encoder."""
    if not expert_kinds(recipe.experts) & ENCODER_KINDS:
        return ()
    rates = recipe.train.rates
    return tuple(searched for searched in NETWORK if searched.key.rpartition(".")[2] in rates)


def current_values(recipe: Recipe, space: tuple[Searched, ...]) -> dict[str, Any]:
    """Return the values that a recipe has."""
    found = {}
    for searched in space:
        value: Any = recipe_to_mapping(recipe)
        for name in searched.key.split("."):
            value = value[name]
        found[searched.key] = value
    return found


def as_overrides(settings: Settings) -> list[str]:
    """Return settings in the form `section.key=value`."""
    return [f"{key}={value}" for key, value in settings.items()]
