"""Optuna as the engine of a search: tree-structured Parzen estimator, median pruning, one file."""

from __future__ import annotations

from typing import Any

from glocal.errors import require
from glocal.tune.search_engine import Search, Trial
from glocal.tune.search_space import Range, Searched

_FIRST_RANDOM = 8  # trials before the sampler learns from others
_FIRST_WHOLE = 4  # trials that are never stopped early


class OptunaEngine:
    """Proposes settings by Optuna; see `SearchEngine`.

    Args:
        search: The search; its trials are kept in the file `optuna.log` of its folder.
    """

    def __init__(self, search: Search) -> None:
        optuna: Any = require("optuna", extra="tune", purpose="tuning")
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._search = search
        search.folder.mkdir(parents=True, exist_ok=True)
        self._study: Any = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(search.folder / "optuna.log"))),
            study_name=search.stage,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_FIRST_WHOLE),
        )
        # Another seed for each continuation, so that it does not propose the same again.
        n_trials = len(self._study.trials)
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=_FIRST_RANDOM, seed=search.seed + n_trials
        )
        self._states: Any = optuna.trial.TrialState

    def ask(self) -> Trial:
        """Return the next trial; the first one has the recipe's own settings."""
        finished = self._study.get_trials(states=[self._states.COMPLETE])
        if not any(trial.user_attrs.get("first") for trial in finished):
            self._study.enqueue_trial({}, user_attrs={"first": True})
            trial = self._study.ask()
            settings = dict(self._search.first)
        else:
            trial = self._study.ask()
            settings = {s.key: _suggested(trial, s) for s in self._search.space}
        trial.set_user_attr("settings", settings)
        return Trial(trial.number, settings, handle=trial)

    def is_hopeless(self, trial: Trial, step: int, score: float) -> bool:
        """Record the score of a running trial, and return whether to stop it."""
        trial.handle.report(score, step)
        return bool(trial.handle.should_prune())

    def tell(self, trial: Trial, score: float | None) -> None:
        """Record how a trial ended; None for one that was stopped early."""
        if score is None:
            self._study.tell(trial.handle, state=self._states.PRUNED)
        else:
            self._study.tell(trial.handle, score)

    def finished(self) -> list[Trial]:
        """Return all trials with a score."""
        found = self._study.get_trials(states=[self._states.COMPLETE])
        return [Trial(t.number, t.user_attrs["settings"], t.value) for t in found]


def _suggested(trial: Any, searched: Searched) -> Any:
    if not isinstance(searched, Range):
        return trial.suggest_categorical(searched.key, searched.values)
    if searched.whole:
        low, high = int(searched.low), int(searched.high)
        return trial.suggest_int(searched.key, low, high, log=searched.log)
    value = trial.suggest_float(searched.key, searched.low, searched.high, log=searched.log)
    return float(f"{value:.3g}")  # as precise as it matters, and readable in a recipe
