"""The seam between tuning and the engine that proposes settings.

An engine proposes settings, receives scores while a trial runs, and remembers finished trials in a
folder, so that a search continues after an interruption. Optuna is the one there is; another one
implements `SearchEngine` and is one line in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from glocal.errors import ConfigError, no_such
from glocal.tune.search_space import Searched, Settings


@dataclass(frozen=True)
class Trial:
    """Settings that are tried.

    Attributes:
        number: Its number in the search, from 0 on.
        settings: The settings.
        score: The metric on dev; None while it runs, and for a trial that was stopped early.
        handle: Belongs to the engine.
    """

    number: int
    settings: Settings
    score: float | None = None
    handle: Any = field(default=None, repr=False, compare=False)


class SearchEngine(Protocol):
    """Proposes settings and remembers trials."""

    def ask(self) -> Trial:
        """Return the next trial; the first one has the recipe's own settings."""

    def is_hopeless(self, trial: Trial, step: int, score: float) -> bool:
        """Record the score of a running trial, and return whether to stop it.

        Args:
            trial: The trial.
            step: How far it is, a whole number; scores are compared with others at that step.
            score: The metric on dev so far.
        """

    def tell(self, trial: Trial, score: float | None) -> None:
        """Record how a trial ended; None for one that was stopped early."""

    def finished(self) -> Sequence[Trial]:
        """Return all trials with a score, those of earlier calls included."""


@dataclass(frozen=True)
class Search:
    """A search in a folder.

    Attributes:
        folder: Where an engine keeps its trials.
        stage: Name of the search; a folder can hold several.
        space: The settings to search.
        first: The settings of the first trial.
        seed: Random seed.
    """

    folder: Path
    stage: str
    space: Sequence[Searched]
    first: Settings
    seed: int = 0


ENGINES = {"optuna": "glocal.tune.optuna_engine:OptunaEngine"}


def open_engine(name: str, search: Search) -> SearchEngine:
    """Return an engine that continues the search in a folder, or starts one.

    Raises:
        ConfigError: There is no such engine.
        MissingExtraError: Its package is not installed.
    """
    if name not in ENGINES:
        raise ConfigError(no_such("search engine", name, list(ENGINES)))
    module, _, kind = ENGINES[name].partition(":")
    engine: SearchEngine = getattr(import_module(module), kind)(search)
    return engine
