"""A search for the best settings of a recipe on dev, within a time budget.

    network settings (each trial trains it) → words settings (the best network stays) → recipe

- Finished trials are kept in a folder; another call with the same data and recipe continues.
- The first trial of each stage has the recipe's own settings: the result is never worse on dev.
- The threshold of tags needs no search: every training tunes it on dev.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from glocal.config import Recipe, load_recipe, recipe_names, recipe_to_mapping
from glocal.config.durations import format_seconds
from glocal.config.recipe_files import parse_override, set_dotted
from glocal.config.resolve import check
from glocal.config.toml import to_toml
from glocal.data.atomic import exclusive, write_json, write_text
from glocal.data.corpus import Corpus
from glocal.encoders.read_facts import read_encoder_facts
from glocal.errors import ConfigError, DataError, Interrupted, Remedy
from glocal.train.listener import TrainListener
from glocal.tune.search_engine import Search, SearchEngine, Trial, open_engine
from glocal.tune.search_space import (
    Searched,
    Settings,
    as_overrides,
    current_values,
    network_space,
    words_space,
)
from glocal.tune.trials import Trials, TrialStopped
from glocal.vocabulary.label_table import LabelTable
from glocal.vocabulary.label_text import names_labels

NETWORK, WORDS = "network", "words"


@dataclass(frozen=True)
class Tuning:
    """The result of a search.

    Attributes:
        path: The recipe that was written.
        metric: The metric that was searched for.
        settings: The settings that were found, those that differ from the recipe's.
        before: The metric on dev with the recipe's own settings.
        after: The metric with the settings found.
        n_trials: Number of finished trials, those of earlier calls included.
    """

    path: Path
    metric: str
    settings: Mapping[str, Any]
    before: float
    after: float
    n_trials: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**vars(self), "path": str(self.path), "settings": dict(self.settings)}


def tune_recipe(
    recipe: str | Path,
    train: Corpus,
    dev: Corpus,
    *,
    out: str | Path,
    overrides: Sequence[str] = (),
    budget: float | None = None,
    trials: int | None = None,
    label_table: LabelTable | None = None,
    engine: str = "optuna",
    overwrite: bool = False,
    device: str = "auto",
    listener: TrainListener | None = None,
    trials_in: Callable[..., Any] | None = None,
) -> Tuning:
    """Search settings of a recipe and write the best ones as a recipe.

    Args:
        recipe: The recipe to start from: a name, or a path ending in .toml.
        train: The training texts.
        dev: The texts to measure on.
        out: The recipe to write; trials are kept beside it, in `OUT.study`.
        overrides: Settings of the recipe to change first, as `section.key=value`.
        budget: Seconds after which no trial starts; None for no limit.
        trials: Most trials of each stage in this call; None for no limit.
        label_table: Names, descriptions and parents of labels.
        engine: The engine that proposes settings.
        overwrite: Forget the trials of an earlier search.
        device: Where networks are trained.
        listener: Receives one message for each trial, and the events of networks in training.
        trials_in: Returns what runs trials, in place of `Trials`.

    Raises:
        ConfigError: Nothing of the recipe can be searched, neither limit is given, or the trials
            there belong to other data or another recipe.

    Example:
        >>> from glocal import Corpus, tune_recipe
        >>> corpus = Corpus.from_texts(texts, labels)
        >>> tune_recipe("fast", corpus, corpus, out="tuned.toml", trials=1).n_trials
        1
    """
    started, target, listener = time.monotonic(), Path(out), listener or TrainListener()
    base = load_recipe(recipe, overrides)
    stages = _stages(base, label_table, budget=budget, trials=trials)
    check(base, read_encoder_facts, has_label_table=label_table is not None)
    if not any(dev.labels()):
        raise DataError("no dev text has labels, so settings cannot be compared", path=dev.source)
    folder = target.with_name(f"{target.name}.study")
    with exclusive(target):
        _open_study(folder, base, train, dev, overwrite=overwrite)
        runner: Trials = (trials_in or Trials)(
            train, dev, label_table, folder, device=device, listener=listener
        )
        found: dict[str, Any] = {}
        scores: list[float] = []
        count = 0
        for number, (stage, space) in enumerate(stages):
            share = None if budget is None else started + budget * (number + 1) / len(stages)
            search = _Stage(stage, runner, listener, deadline=share, most=trials)
            chosen = [*overrides, *as_overrides(found)]
            own = current_values(load_recipe(recipe, chosen), space)
            proposals = open_engine(engine, Search(folder, stage, space, own, base.train.seed))
            search.run(partial(_with, recipe, chosen), proposals)
            finished = proposals.finished()
            count += len(finished)
            best = max(finished, key=lambda trial: (trial.score or 0.0, -trial.number))
            # The first trial with a score has the recipe's own settings.
            scores += [finished[0].score or 0.0, best.score or 0.0]
            found |= {key: value for key, value in best.settings.items() if own[key] != value}
            _write_recipe(target, recipe, [*overrides, *as_overrides(found)], scores)
            if search.interrupted:
                listener.on_message("stopped; the best settings so far are written")
                break
    return Tuning(target, base.train.metric, found, scores[0], scores[-1], count)


def _with(recipe: str | Path, chosen: Sequence[str], settings: Settings) -> Recipe:
    return load_recipe(recipe, [*chosen, *as_overrides(settings)])


def _stages(
    base: Recipe, table: LabelTable | None, *, budget: float | None, trials: int | None
) -> list[tuple[str, tuple[Searched, ...]]]:
    if budget is None and trials is None:
        raise ConfigError(
            "a search needs a limit",
            remedies=[Remedy("budget", "limit its time"), Remedy("trials", "limit its trials")],
        )
    spaces = {NETWORK: network_space(base), WORDS: words_space(base, has_names=names_labels(table))}
    stages = [(stage, space) for stage, space in spaces.items() if space]
    if not stages or "auto" in base.experts:
        raise ConfigError(
            f"nothing of a recipe with the experts {', '.join(base.experts)} can be searched; "
            "choose one with fixed experts, such as fast or balanced"
        )
    return stages


def _open_study(folder: Path, base: Recipe, train: Corpus, dev: Corpus, *, overwrite: bool) -> None:
    """Check that the trials in a folder are about the same recipe and data.

    Raises:
        ConfigError: They are not.
    """
    about = [recipe_to_mapping(base), train.fingerprint(), dev.fingerprint()]
    key = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()
    if overwrite:
        shutil.rmtree(folder, ignore_errors=True)
    note = folder / "study.json"
    if note.is_file() and json.loads(note.read_text("utf-8")).get("key") != key:
        raise ConfigError(
            f"the trials in {folder} are about another recipe or other texts",
            remedies=[Remedy("overwrite", "forget them")],
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(note, {"key": key, "metric": base.train.metric})


@dataclass
class _Stage:
    """One stage of the search."""

    name: str
    runner: Trials
    listener: TrainListener
    deadline: float | None
    most: int | None
    longest: float = 0.0
    kept: float = -1.0  # score of the network that was kept last
    interrupted: bool = False
    # Trials may run at the same time; the engine is one.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, recipe_with: Callable[[Settings], Recipe], engine: SearchEngine) -> None:
        """Try settings until time or trials run out.

        Args:
            recipe_with: Returns the recipe with some settings.
            engine: Proposes settings and remembers trials.

        Raises:
            KeyboardInterrupt: It is stopped before the first trial ends.
        """
        if self.runner.at_once > 1:
            self._run_together(recipe_with, engine)
            return
        done = 0
        while not engine.finished() or self._has_time(done):
            trial = engine.ask()
            try:
                self._try(trial, recipe_with(trial.settings), engine)
            except (KeyboardInterrupt, Interrupted):
                engine.tell(trial, None)
                self.interrupted = True
                if not engine.finished():
                    raise
                break
            done += 1

    def _run_together(
        self, recipe_with: Callable[[Settings], Recipe], engine: SearchEngine
    ) -> None:
        """Try several settings at the same time, after the recipe's own."""
        running: set[Future[None]] = set()
        started = 0

        def may_start() -> bool:
            with self.lock:
                first = not engine.finished()
            room = len(running) < (1 if first else self.runner.at_once)
            return room and (first or self._has_time(started))

        with ThreadPoolExecutor(self.runner.at_once) as pool:
            while True:
                while may_start():
                    with self.lock:
                        trial = engine.ask()
                    recipe = recipe_with(trial.settings)
                    running.add(pool.submit(self._try, trial, recipe, engine))
                    started += 1
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()

    def _try(self, trial: Trial, recipe: Recipe, engine: SearchEngine) -> None:
        """Try settings and record how good they are."""
        began = time.monotonic()
        score = self._score(trial, recipe, engine)
        with self.lock:
            engine.tell(trial, score)
            seconds = time.monotonic() - began
            self.longest = max(self.longest, seconds)
            self._report(trial, score, recipe.train.metric, seconds)

    def _has_time(self, done: int) -> bool:
        if self.most is not None and done >= self.most:
            return False
        return self.deadline is None or time.monotonic() + self.longest < self.deadline

    def _score(self, trial: Trial, recipe: Recipe, engine: SearchEngine) -> float | None:
        def is_hopeless(step: int, score: float) -> bool:
            with self.lock:
                return engine.is_hopeless(trial, step, score)

        runner = self.runner
        try:
            if self.name == WORDS:
                return runner.words(recipe, is_hopeless)
            path = runner.best_network.with_name(f"network-{trial.number}")
            score = runner.network(recipe, is_hopeless, out=path)
        except TrialStopped:
            return None
        with self.lock:
            if score > self._best_kept(engine):
                self.kept = score
                runner.keep_network(path)
            else:
                shutil.rmtree(path, ignore_errors=True)
        return score

    def _best_kept(self, engine: SearchEngine) -> float:
        """Return the score of the best network so far; below 0 before there is one."""
        scores = [trial.score or 0.0 for trial in engine.finished()]
        return max([self.kept, *scores])

    def _report(self, trial: Trial, score: float | None, metric: str, seconds: float) -> None:
        settings = ", ".join(as_overrides(trial.settings))
        result = "stopped early" if score is None else f"{metric} {100 * score:.2f}"
        self.listener.on_message(
            f"{self.name} trial {trial.number}: {result} in {format_seconds(seconds)} ({settings})"
        )


def _write_recipe(
    target: Path, recipe: str | Path, settings: Sequence[str], scores: Sequence[float]
) -> None:
    """Write the recipe: the differences to a built-in one, or all settings."""
    note = f"Tuned on dev: {100 * scores[0]:.2f} before, {100 * scores[-1]:.2f} after"
    mapping: dict[str, Any] = {"description": f"{recipe}. {note}", "extends": str(recipe)}
    if str(recipe) in recipe_names():
        for text in settings:
            set_dotted(mapping, *parse_override(text))
    else:
        whole = recipe_to_mapping(load_recipe(recipe, settings))
        mapping = {**whole, "description": mapping["description"]}
    write_text(target, to_toml(mapping))
