import numpy as np
import pytest
from scipy.sparse import csr_matrix

pytest.importorskip("sklearn")

from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.lab.baselines import linear_svm
from glocal.lab.baselines.linear_svm import LinearSVM
from glocal.lab.baselines.tfidf import TextFeatures
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import tiny_corpus


def positives(corpus):
    labels = LabelSpace.build(corpus)
    return labels.encode(corpus)[:, : len(labels)]


def test_labels_never_seen_are_never_predicted(tmp_path):
    corpus = tiny_corpus(40)
    gold = positives(corpus)
    # Two labels without a positive: LinearSVC alone would score them 0, above most margins.
    gold = csr_matrix((gold.data, gold.indices, gold.indptr), (gold.shape[0], gold.shape[1] + 2))
    model = LinearSVM({})
    model.fit(corpus, gold, tmp_path)
    found = model.predict(["the red cat", "nothing known"], gold.shape[1])
    assert found.indices.max() == gold.shape[1] - 3
    assert (found.indices[:, -2:] == -1).all()


def test_agrees_with_scikit_learn_where_nothing_is_pruned(tmp_path):
    from sklearn.svm import LinearSVC

    corpus, test = tiny_corpus(40), tiny_corpus(10, seed=5).texts()
    gold = positives(corpus)
    model = LinearSVM({"tol": 1e-6, "max_iter": 10_000})
    model.fit(corpus, gold, tmp_path)
    found = model.predict(test, gold.shape[1])
    features = TextFeatures()
    train_rows = features.fit(corpus)
    for label in (0, 5):
        alone = LinearSVC(tol=1e-6, max_iter=10_000, random_state=0)
        alone.fit(train_rows, gold[:, label].toarray().ravel() > 0)
        margins = alone.decision_function(features.transform(test))
        mine = found.scores[found.indices == label]
        np.testing.assert_allclose(mine, margins, atol=1e-4)


def test_small_weights_are_dropped(tmp_path):
    corpus = tiny_corpus(64)
    whole, pruned = LinearSVM({}), LinearSVM({"prune": 0.2})
    for name, model in {"whole": whole, "pruned": pruned}.items():
        model.fit(corpus, positives(corpus), tmp_path / name)
    assert pruned.weights.nnz < whole.weights.nnz
    assert np.abs(pruned.weights.data).min() > 0.2


def test_blocks_of_texts_change_nothing(tmp_path, monkeypatch):
    corpus, test = tiny_corpus(40), tiny_corpus(13, seed=2).texts()
    model = LinearSVM({})
    model.fit(corpus, positives(corpus), tmp_path)
    whole = model.predict(test, 4)
    monkeypatch.setattr(linear_svm, "SCORES_AT_A_TIME", 3 * model.n_labels)
    np.testing.assert_array_equal(model.predict(test, 4).indices, whole.indices)


def test_tells_how_far_it_is(tmp_path):
    corpus, seen, said = tiny_corpus(40), [], []
    model = LinearSVM({}, threads=2, progress=lambda done, total: seen.append((done, total)))
    model.fit(corpus, positives(corpus), tmp_path, said.append)
    assert seen == [(n, model.n_labels) for n in range(1, model.n_labels + 1)]
    assert said[-1].startswith("100.0 %")


def test_texts_without_a_word_are_refused():
    with pytest.raises(DataError, match="words of two letters"):
        TextFeatures().fit(Corpus.from_texts(["?", "!"], [["a"], ["b"]]))
