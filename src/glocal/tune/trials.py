"""Trials of settings: how good a recipe is on dev, with as little training as possible.

- A trial of the words model fits it on a part of the training texts, then on all of them. In a
  recipe with an encoder the network stays as it is: only the words model and the weights of the
  experts are fitted.
- A trial of the network trains it; its scores on dev during the run can end the trial early.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glocal.companions.companion_list import Companions
from glocal.companions.sparse.sparse_companion import SparseCompanion
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.config import Recipe
from glocal.config.resolve import check, resolve
from glocal.data.corpus import Corpus
from glocal.encoders.read_facts import read_encoder_facts
from glocal.encoders.word_tokenizer import NoTokenizer
from glocal.ranking.words_ranker import WordsRanker
from glocal.storage.model_directory import StoredModel, load_model
from glocal.train.checkpoint import RunFolder
from glocal.train.gather import build_label_space
from glocal.train.listener import TrainListener
from glocal.train.run import fit
from glocal.train.single import stored_evaluator
from glocal.vocabulary.label_table import LabelTable

Hopeless = Callable[[int, float], bool]  # step and score of a running trial → whether to stop it
_PART = 4  # a first look takes one text in so many
_FEWEST = 2000  # training texts from which on there is a first look


class TrialStopped(Exception):
    """A trial was stopped early."""


@dataclass(eq=False)
class Trials:
    """Measures recipes on dev.

    Args:
        train: The training texts.
        dev: The texts to measure on.
        label_table: Names, descriptions and parents of labels.
        folder: Where networks are kept.
        device: Where networks are trained.
        listener: Receives the events of their training.

    Attributes:
        at_once: Trials that may run at the same time.
    """

    train: Corpus
    dev: Corpus
    label_table: LabelTable | None
    folder: Path
    _: KW_ONLY
    device: str = "auto"
    listener: TrainListener = field(default_factory=TrainListener)
    at_once: int = field(default=1, init=False)

    @property
    def best_network(self) -> Path:
        """The folder of the best network so far."""
        return self.folder / "network"

    # --- the network ----------------------------------------------------------------------------

    def network(self, recipe: Recipe, is_hopeless: Hopeless, *, out: Path) -> float:
        """Train a network and return its score.

        Raises:
            TrialStopped: Its scores during the run are hopeless.
        """
        watch = _Watch(self.listener, recipe.train.metric, is_hopeless)
        try:
            result = fit(
                recipe,
                self.train,
                out=out,
                dev=self.dev,
                label_table=self.label_table,
                overwrite=True,
                device=self.device,
                listener=watch,
            )
        except TrialStopped:
            RunFolder(out).remove()
            raise
        return float(result.metrics["dev"][recipe.train.metric])

    def keep_network(self, path: Path) -> None:
        """Keep a network as the best one so far."""
        shutil.rmtree(self.best_network, ignore_errors=True)
        path.rename(self.best_network)

    @cached_property
    def _network(self) -> tuple[StoredModel, Mapping[str, np.ndarray]]:
        """The best network, and the features of dev by companions other than the words model."""
        model = load_model(self.best_network)
        others = [c for c in model.companions or () if not isinstance(c, SparseCompanion)]
        return model, Companions(others).features(self.dev)

    # --- the words model ------------------------------------------------------------------------

    def words(self, recipe: Recipe, is_hopeless: Hopeless) -> float:
        """Fit a words model and return the score of the recipe with it.

        Raises:
            TrialStopped: A model of a part of the texts is hopeless.
        """
        if len(self.train) >= _FEWEST:
            part = self.train.take(np.arange(0, len(self.train), _PART))
            if is_hopeless(0, self._words_score(recipe, part)):
                raise TrialStopped
        return self._words_score(recipe, self.train)

    def _words_score(self, recipe: Recipe, train: Corpus) -> float:
        if recipe.reads_words_alone:
            labels = build_label_space(recipe, train, self.label_table)
            checked = check(recipe, read_encoder_facts, has_label_table=True)
            resolved = resolve(checked, n_labels=len(labels), device_type="cpu", processes=1)
            model = StoredModel(WordsRanker(labels.counts), resolved, labels, NoTokenizer())
            others: Mapping[str, Any] = {}
        else:
            model, others = self._network
            labels = model.labels
        seed, device = recipe.train.seed, self.device
        # Unlike in training, it is not kept in the cache.
        fitted = SparseModel.fit(train, labels, recipe.sparse, seed=seed, device=device)
        words = SparseCompanion(fitted, labels.counts, labels.n_documents)
        features = {**others, **words.features(self.dev)}
        evaluator = stored_evaluator(model, self.dev, features, device)
        return evaluator.combined().model[recipe.train.metric]


class _Watch(TrainListener):
    """Passes events on, and stops a run whose scores on dev are hopeless."""

    def __init__(self, listener: TrainListener, metric: str, is_hopeless: Hopeless) -> None:
        self._listener, self._metric, self._is_hopeless = listener, metric, is_hopeless
        self._step = 0

    def on_start(self, info: Mapping[str, Any]) -> None:
        self._listener.on_start(info)

    def on_step(self, info: Mapping[str, Any]) -> None:
        self._listener.on_step(info)

    def on_evaluation(self, info: Mapping[str, Any]) -> None:
        self._listener.on_evaluation(info)
        self._step += 1
        if self._is_hopeless(self._step, float(info["scores"][self._metric])):
            raise TrialStopped

    def on_message(self, text: str) -> None:
        self._listener.on_message(text)
