"""The inputs of a run, which its members share: labels, companions and their features.

The label space, the companions fitted on the raw texts (a teacher, the sparse model), and the
features they give for every text. Without dev texts, some training texts are held out in their
place: those that the sparse model holds out for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Ints
from glocal.companions.companion import FitInputs
from glocal.companions.companion_list import Companions, companions_of, word_vectors
from glocal.companions.sparse.cluster_solvers import one_first
from glocal.companions.sparse.platt import held_out_texts
from glocal.config import Recipe
from glocal.config.resolve import CheckedRecipe, check
from glocal.config.rules import DataFacts, data_problems
from glocal.data.corpus import Corpus
from glocal.data.duplicates import text_keys
from glocal.encoders.read_facts import read_encoder_facts
from glocal.errors import ConfigError, DataError
from glocal.progress import Progress, StagedProgress, silent
from glocal.train.context import RunContext, throttled_progress
from glocal.train.later_companions import LaterCompanions
from glocal.train.soft_targets import SoftTargets
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from glocal.vocabulary.label_text import label_texts, names_labels

if TYPE_CHECKING:
    from glocal.encoders.static import StaticVectors

_FEWEST_TEXTS, _FEWEST_HELD_OUT = 200, 15  # a handful of texts is no sample to tune on


@dataclass(frozen=True)
class RunInputs:
    """Everything a run needs in addition to its recipe.

    Attributes:
        train: The training texts.
        dev: Texts to choose weights on; None without any.
        labels: The label space.
        vectors: Word vectors, where the recipe reads them.
        companions: The models of raw texts that were fitted first.
        train_features: Their features of the training texts.
        dev_features: Their features of dev.
        later: Models of raw texts that are fitted while the network trains.
        label_texts: Names and descriptions of the labels, where the recipe uses them.
        held_out: Whether dev was held out of the training texts. Such a sample is small: it tunes
            weights, calibration and decision at the end, and does not choose checkpoints.
        targets: A teacher's soft targets of the training texts, a CSR matrix; None for gold labels.
            The training texts then end with those that have no labels.
    """

    train: Corpus
    dev: Corpus | None
    labels: LabelSpace
    vectors: StaticVectors | None
    companions: Companions
    train_features: Mapping[str, np.ndarray]
    dev_features: Mapping[str, np.ndarray]
    later: LaterCompanions
    label_texts: Sequence[str] | None = None
    held_out: bool = False
    targets: Any = None

    @property
    def all_companions(self) -> Companions:
        """Every companion of the model; waits for those that are still being fitted."""
        return Companions([*self.companions, *self.later.companions])


def check_recipe(recipe: Recipe, table: LabelTable | None) -> CheckedRecipe:
    """Check a recipe before anything is fitted; see `check`."""
    has_names = names_labels(table)
    has_table = table is not None
    return check(recipe, read_encoder_facts, has_label_table=has_table, has_label_names=has_names)


def build_label_space(recipe: Recipe, train: Corpus, table: LabelTable | None) -> LabelSpace:
    """Return the labels that a recipe's model knows."""
    config = recipe.labels
    return LabelSpace.build(
        train, table=table, min_count=config.min_count, score_unseen=config.score_unseen
    )


def gather_inputs(
    recipe: Recipe,
    train: Corpus,
    dev: Corpus | None,
    table: LabelTable | None,
    context: RunContext,
    *,
    watch: StagedProgress = silent,
    overlap: bool = False,
    soft: SoftTargets | None = None,
    device: str = "auto",
) -> RunInputs:
    """Fit the companions on the raw texts, and compute their features of all texts.

    Args:
        recipe: The settings.
        train: The training texts.
        dev: Texts to choose weights on.
        table: Names, descriptions and parents of labels.
        context: Where the run computes and reports.
        watch: Also receives the progress of the companions' fit.
        overlap: Fit companions that training does not read in another process meanwhile.
        soft: A teacher's probabilities of the training texts and of texts without labels.
        device: Where companions are fitted: `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    engine, listener = context.engine, context.listener
    labels = build_label_space(recipe, train, table)
    _check_data(recipe, train, dev, labels, processes=engine.world)
    texts = label_texts(labels, table) if recipe.uses_label_text else None
    listener.on_message(f"{len(train):,} texts, {len(labels):,} labels; {engine.describe()}")
    report = throttled_progress(listener)
    vectors = word_vectors(recipe, train, table, progress=report("word vectors trained, passes"))
    inputs = FitInputs(recipe, train, labels, table, vectors, device, engine.solvers)
    kinds = companions_of(recipe)
    held_out = None if dev is not None else hold_out(train, labels, seed=recipe.train.seed)
    if held_out is not None:
        kept, held = held_out
        train, dev = train.take(kept), train.take(held)
        soft = None if soft is None else soft.take(kept)
        listener.on_message(
            f"no dev texts: {len(dev):,} training texts are held out to tune probabilities and tags"
        )
    later = [kind for kind in kinds if overlap and not kind.feeds_training]
    waiting = LaterCompanions(later, inputs, dev, listener)
    # The main process computes, and the others find the result in the cache.
    in_turn = partial(one_first, engine.is_main, engine.wait)
    companions = Companions.fit(
        inputs,
        kinds=[kind for kind in kinds if kind not in later],
        in_turn=in_turn,
        progress=_both(report, watch),
    )
    with in_turn():
        reading = report("texts read by the companions")
        train_features = companions.training_features(train, progress=reading)
        dev_features = {} if dev is None else companions.features(dev, progress=reading)
    gathered = RunInputs(
        train,
        dev,
        labels,
        vectors,
        companions,
        train_features,
        dev_features,
        waiting,
        texts,
        held_out is not None,
    )
    return gathered if soft is None else _with_soft_targets(gathered, soft)


def _with_soft_targets(inputs: RunInputs, soft: SoftTargets) -> RunInputs:
    """Add a teacher's targets, and the texts without labels that have no others."""
    train, features = soft.joined(inputs.train), dict(inputs.train_features)
    if soft.unlabelled is not None and features:
        more = inputs.companions.features(soft.unlabelled)
        features = {name: np.concatenate([rows, more[name]]) for name, rows in features.items()}
    targets = soft.matrix(inputs.labels, inputs.labels.encode(train))
    return replace(inputs, train=train, train_features=features, targets=targets)


def hold_out(train: Corpus, labels: LabelSpace, *, seed: int) -> tuple[Ints, Ints] | None:
    """Return the places of texts to train on and to tune on; None where there are too few.

    Every label keeps a training text, and no text to tune on is also a training text.
    """
    if len(train) < _FEWEST_TEXTS:
        return None
    # The same texts that the sparse model is not trained on.
    held = held_out_texts(labels.encode(train)[:, : len(labels)], seed=seed)
    kept = np.setdiff1d(np.arange(len(train)), held)
    keys = text_keys(train, near=False)
    held = held[~np.isin(keys[held], keys[kept])]
    if len(held) < _FEWEST_HELD_OUT:
        return None
    return kept, held


def _check_data(
    recipe: Recipe, train: Corpus, dev: Corpus | None, labels: LabelSpace, *, processes: int
) -> None:
    """Refuse data that the recipe cannot be trained on, before anything is fitted."""
    facts = DataFacts(len(train), len(labels), processes)
    ConfigError.raise_any(data_problems(recipe, facts))
    if dev is None and recipe.train.schedule == "plateau":
        raise ConfigError(
            "train.schedule=plateau lowers the learning rate when scores on dev stop rising, and "
            "there are no dev texts; give some, or set train.schedule=linear"
        )
    if dev is not None and not labels.encode(dev).nnz:
        raise DataError(
            f"none of the {len(dev)} dev texts has labels, so they cannot select weights; check "
            "the labels column, or train without dev texts",
            path=dev.source,
        )


def _both(first: StagedProgress, second: StagedProgress) -> StagedProgress:
    """Return progress callbacks that report to two others."""

    def stage(name: str) -> Progress:
        callbacks = first(name), second(name)

        def progress(done: int, total: int | None) -> None:
            for callback in callbacks:
                callback(done, total)

        return progress

    return stage
