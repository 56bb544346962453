"""Sparse models after changes of their labels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from glocal.companions.sparse import changed_model, new_labels
from glocal.companions.sparse.changed_model import _without
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.training_memory import LabelledTexts
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary import label_change
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

WORDS = ["cat", "dog", "owl", "fox", "bee", "hen"]
TEXTS = [f"a {first} and one {second}" for first in WORDS for second in WORDS if first != second]
GOLD = [[word for word in WORDS[:-1] if word in text] for text in TEXTS]
CONFIG = SparseConfig(min_words=1, min_pairs=1, memory=100)


@pytest.fixture(scope="module")
def fitted():
    corpus = Corpus.from_texts(TEXTS, GOLD)
    labels = LabelSpace.build(corpus)
    return SparseModel.fit(corpus, labels, CONFIG, seed=0), labels


def sparse(rows):
    return csr_matrix(np.array(rows, np.float32))


def test_texts_with_the_same_features_are_left_out():
    sample = LabelledTexts(sparse([[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 2]]), sparse(np.eye(4)))
    others = sparse([[2, 2, 5], [0, 0, 7]])  # the last column is not compared, nor are values
    kept = _without(sample, others, np.array([0, 1]))
    assert kept.gold.indices.tolist() == [1, 2, 3]
    assert _without(sample, others[:0], np.array([0, 1])) is sample


def test_examples_among_the_kept_texts_count_as_examples_say(fitted):
    model, labels = fitted
    table = LabelTable(["hen"], ["hen"])
    shown = [text for text in TEXTS if "hen" in text][:4]
    examples = Corpus.from_texts(shown, [["hen"]] * 4)
    before = len(model.memory.sample)
    changed = model.with_labels(label_change.added(labels, table, examples=examples))
    assert len(changed.memory.sample) == before - 4
    scores = changed.topk(["one hen", "one cat"], 6)
    of_hen = [dict(zip(*row, strict=True))[5] for row in zip(*scores, strict=True)]
    assert of_hen[0] > of_hen[1]


def test_any_number_of_threads_gives_the_same_labels(fitted, monkeypatch):
    model, labels = fitted
    new = [f"new {number}" for number in range(20)]
    texts = [f"a {name} thing{number}" for number, name in enumerate(new)]
    examples = Corpus.from_texts(texts, [[name] for name in new])
    change = label_change.added(labels, LabelTable(new, new), examples=examples)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(new_labels, "change_threads", lambda threads=threads: threads)
        found.append(model.with_labels(change).scorer)
    np.testing.assert_allclose(found[0].weights.toarray(), found[1].weights.toarray(), atol=1e-6)
    np.testing.assert_allclose(found[0].biases, found[1].biases, atol=1e-6)


@pytest.mark.parametrize("continues", [False, True])
def test_embedding_bags_give_the_same_labels(fitted, continues, monkeypatch):
    pytest.importorskip("torch")
    model, labels = fitted
    examples = Corpus.from_texts(["a hen and one cat", "one hen"], [["hen", "cat"], ["hen"]])
    if continues:
        change = label_change.continued(labels, examples)
    else:
        change = label_change.added(labels, LabelTable(["hen"], ["hen"]), examples=examples)
    found = []
    for bags in (False, True):
        monkeypatch.setattr(changed_model, "torch_is_loaded", lambda bags=bags: bags)
        found.append(model.with_labels(change).scorer)
    np.testing.assert_allclose(found[0].weights.toarray(), found[1].weights.toarray(), atol=2e-3)
    np.testing.assert_allclose(found[0].biases, found[1].biases, atol=1e-4)


def test_labels_that_stay_are_not_copied(fitted):
    _, labels = fitted
    table = LabelTable(["hen"], ["hen"])
    assert label_change.added(labels, table).keeps_columns
    assert label_change.renamed(labels, {}, {"cat": "Cat"}).keeps_columns
    assert not label_change.removed(labels, ["cat"]).keeps_columns
    assert not label_change.merged(labels, ["cat"], "dog").keeps_columns


@pytest.mark.parametrize("rounded", [True, False])
def test_weights_of_labels_that_stay_are_the_same(fitted, rounded, tmp_path):
    """Weights of older models are not rounded, and stay as they are too."""
    model, labels = fitted
    if not rounded:
        weights = model.scorer.weights * np.float32(1.0001)
        scorer = replace(model.scorer, weights=weights)
        model = SparseModel(model.vectoriser, scorer, model.config, model.memory)
    examples = Corpus.from_texts(["one hen", "a hen here"], [["hen"]] * 2)
    change = label_change.added(labels, LabelTable(["hen"], ["hen"]), examples=examples)
    changed = model.with_labels(change)
    assert changed.scorer.is_rounded == rounded
    changed.save(tmp_path / "sparse")
    before, after = (
        some.topk(TEXTS, 5, allowed=np.arange(some.n_labels) < 5)
        for some in (model, SparseModel.load(tmp_path / "sparse"))
    )
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_allclose(before[1], after[1], rtol=1e-6)
