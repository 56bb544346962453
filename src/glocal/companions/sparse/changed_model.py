"""A trained sparse model after a change of its labels, or after further texts.

- The scores of labels that stay are the same, unless they learn from further texts.
- New words of names and of further texts become features first (`new_words`), then labels learn
  (`further_texts`) and new ones are fitted (`new_labels`).
- Both need training texts to compare with: the sample that the model keeps, or, where that is too
  small, texts that are given. A text of the sample that is also an example takes no part, since its
  labels are those of the example now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.bag_products import one_thread_each, torch_is_loaded
from glocal.companions.sparse.further_texts import REPLAYED, learn_texts
from glocal.companions.sparse.new_labels import few_examples, fit_new_labels, sample_rows
from glocal.companions.sparse.new_words import spread_memory, spread_scorer, with_change
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_rows import as_csr
from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.threads import change_threads
from glocal.companions.sparse.training_memory import LabelledTexts, TrainingMemory
from glocal.data.corpus import Corpus
from glocal.errors import ModelError, Remedy
from glocal.vocabulary.label_change import LabelChange
from glocal.vocabulary.label_text import all_names, telling_name

_GIVE_TEXTS = "; give the texts it was trained on as well"
_MOST_EXAMPLES = 250  # of a new label; more hardly change it
_COMPARED = 2000  # most training texts that new labels are fitted against; some have them


def changed_model(model: SparseModel, change: LabelChange) -> SparseModel:
    """Return a model after a change of its labels.

    Raises:
        ModelError: No training texts are at hand to fit labels against.
    """
    before = model.scorer
    model, places = _widened(model, change)
    scorer = replace(model.scorer, weights=as_csr(model.scorer.weights))
    memory = model.memory
    if not change.keeps_columns:
        scorer = scorer.with_labels(change.columns)
    if memory is not None:
        sample = memory.sample.as_csr().with_labels(change.columns, change.n_new)
        memory = replace(memory, sample=sample)
    if change.n_new or change.continues:
        shown = _examples_read(change)
        examples = LabelledTexts(_features(model, shown), change.known_labels(shown))
        if memory is not None:
            seen = places[places < model.vectoriser.n_trained]
            memory = replace(memory, sample=_without(memory.sample, examples.features, seen))
        known = _known(model, memory, change)
        bags = torch_is_loaded()  # a network changes beside it
        with one_thread_each(bags):
            if change.continues:
                scorer = _learnt(model, scorer, change, examples, known, bags=bags)
                kept = memory if memory is not None and memory.has_labels else known
                memory = kept.with_texts(examples, size=model.config.memory)
            if change.n_new:
                added = _new_scorer(model, change, examples, known, bags=bags)
                scorer = scorer.joined(added)
    scorer.weights.sort_indices()
    if before.is_rounded:  # others are older: rounding would change the scores of labels that stay
        scorer = scorer.rounded()
    return SparseModel(model.vectoriser, scorer, model.config, memory)


def _widened(model: SparseModel, change: LabelChange) -> tuple[SparseModel, NDArray[np.int64]]:
    """Return the model with the words that a change brings as features; it scores none.

    The second value is the new place of each old feature.
    """
    if model.memory is None or not (change.n_new or change.continues):
        return model, np.arange(model.vectoriser.n_features)
    vectoriser, places = with_change(model.vectoriser, change, n_texts=model.memory.n_texts)
    size = vectoriser.n_features
    scorer = spread_scorer(model.scorer, places, size, n_words=vectoriser.n_words)
    memory = spread_memory(model.memory, places, size)
    return SparseModel(vectoriser, scorer, model.config, memory), places


def _without(sample: LabelledTexts, texts: Any, columns: NDArray[np.int64]) -> LabelledTexts:
    """Return the texts of a sample that are not among others, by the features in some columns."""
    compared = np.zeros(texts.shape[1], dtype=bool)
    compared[columns] = True
    others = set(_row_keys(texts, compared)) - {b""}
    if not others:
        return sample
    rows = [row for row, key in enumerate(_row_keys(sample.features, compared)) if key in others]
    return sample.take(np.delete(np.arange(len(sample)), rows)) if rows else sample


def _row_keys(texts: Any, compared: NDArray[np.bool_]) -> list[bytes]:
    """Return the features of each text that are compared, as bytes."""
    bounds = texts.indptr
    rows = (texts.indices[bounds[row] : bounds[row + 1]] for row in range(texts.shape[0]))
    return [columns[compared[columns]].tobytes() for columns in rows]


def _known(
    model: SparseModel, memory: TrainingMemory | None, change: LabelChange
) -> TrainingMemory:
    """Return what is known of the training: what the model keeps, or texts given instead.

    Raises:
        ModelError: It is too little for the change.
    """
    if memory is None:
        raise ModelError(
            "the model was written by an earlier version and lacks what changes need; train it "
            "again"
        )
    most = max(REPLAYED, change.n_examples) if change.continues else _COMPARED
    usable = len(memory.sample) if memory.has_labels or not change.continues else 0
    # The sample lacks the examples, so it may be a little smaller than it was asked to be.
    if change.train is not None and usable < 0.9 * min(most, len(change.train)):
        given = change.train.take(sample_rows(len(change.train), most, seed=0))
        texts = LabelledTexts(_features(model, given), change.known_labels(given))
        return replace(memory, sample=texts, has_labels=True)
    if change.n_examples and not len(memory.sample):
        raise ModelError(
            "the model was trained with sparse.memory=0 and keeps no training texts to fit "
            f"labels against{_GIVE_TEXTS if change.continues else ''}",
            remedies=[Remedy("train", "give the training texts", value="…")],
        )
    if change.continues and not memory.has_labels:
        raise ModelError(
            "the model was written by an earlier version and does not keep the labels of its "
            f"training texts{_GIVE_TEXTS}"
        )
    rows = sample_rows(len(memory.sample), most, seed=1)
    return replace(memory, sample=memory.sample.take(rows))


def _learnt(
    model: SparseModel,
    scorer: LinearScorer,
    change: LabelChange,
    examples: LabelledTexts,
    known: TrainingMemory,
    *,
    bags: bool,
) -> LinearScorer:
    """Return the scorer of the labels that stay after they have learnt the examples."""
    n_old = scorer.n_labels
    return learn_texts(
        scorer,
        known.margins,
        model.config,
        texts=examples.of_labels(n_old),
        replay=known.sample.of_labels(n_old),
        counts=(change.before.counts, change.after.counts[:n_old]),
        threads=change_threads(),
        bags=bags,
    )


def _features(model: SparseModel, corpus: Corpus | None) -> Any:
    texts = [] if corpus is None else list(corpus.texts())
    return model.vectoriser.transform(texts, threads=change_threads())


def _examples_read(change: LabelChange) -> Corpus | None:
    """Return the examples that labels learn from; of many of a new label, some are enough."""
    if change.examples is None or change.continues:
        return change.examples
    rng = np.random.default_rng([change.n_examples, 5])
    return change.examples.take(few_examples(change.example_labels, _MOST_EXAMPLES, rng=rng))


def _new_scorer(
    model: SparseModel,
    change: LabelChange,
    examples: LabelledTexts,
    memory: TrainingMemory,
    *,
    bags: bool,
) -> LinearScorer:
    """Return the scorer of the new labels."""
    new = range(len(change.after) - change.n_new, len(change.after))
    return fit_new_labels(
        model.vectoriser,
        memory,
        model.config,
        names=[telling_name(change.after.names[label]) for label in new],
        all_names=all_names(change.after)[new.start :],
        examples=examples.features,
        gold=examples.gold[:, new.start :].tocsr(),
        n_texts=change.after.counts[new.start :],
        bags=bags,
    )
