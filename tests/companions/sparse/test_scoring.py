import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

from glocal.companions.sparse import sparse_scoring as scoring
from glocal.companions.sparse.sparse_rows import SparseRows, as_csr
from glocal.companions.sparse.sparse_scoring import (
    LabelGroups,
    LabelSet,
    LinearScorer,
    dense_product,
    top_labels,
    top_of_sets,
)


def scorer(n_labels=9, n_features=6):
    rng = np.random.default_rng(0)
    weights = rng.integers(-2, 3, (n_features, n_labels)).astype(np.float32)
    return LinearScorer(csr_matrix(weights), rng.integers(0, 2, n_labels).astype(np.float32))


def texts(n_texts=20, n_features=6):
    values = np.random.default_rng(1).integers(0, 2, (n_texts, n_features))
    return csr_matrix(values.astype(np.float32))


def test_best_first_and_ties_by_label(monkeypatch):
    monkeypatch.setattr(scoring, "CHUNK_CELLS", 30)
    model, features = scorer(), texts()
    dense = features.toarray() @ model.weights.toarray() + model.biases
    indices, scores = top_labels(model, features, 4, threads=2)
    expected = np.argsort(-dense, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(dense, expected, axis=1))


def test_more_places_than_labels_are_empty():
    indices, scores = top_labels(scorer(), texts(), 12)
    assert (indices[:, 9:] == -1).all()
    assert np.isneginf(scores[:, 9:]).all()
    assert (np.sort(indices[:, :9], axis=1) == np.arange(9)).all()


def test_only_allowed_labels_come():
    allowed = np.zeros(9, dtype=bool)
    allowed[[2, 5]] = True
    indices, _ = top_labels(scorer(), texts(), 3, allowed=allowed)
    assert set(indices.ravel().tolist()) == {-1, 2, 5}
    by_text = np.zeros((20, 9), dtype=bool)
    by_text[np.arange(20), np.arange(20) % 9] = True
    indices, _ = top_labels(scorer(), texts(), 1, allowed=by_text)
    assert indices.ravel().tolist() == [i % 9 for i in range(20)]


def test_sets_of_labels_are_those_of_single_calls():
    some = np.arange(9) % 2 == 0
    by_text = np.random.default_rng(4).random((20, 9)) < 0.5
    sets = [LabelSet(4), LabelSet(3, some), LabelSet(2, by_text), LabelSet(2, np.zeros(9, bool))]
    found = top_of_sets(scorer(), texts(), sets, threads=2)
    for wanted, (indices, scores) in zip(sets, found, strict=True):
        alone = top_labels(scorer(), texts(), wanted.k, allowed=wanted.allowed)
        np.testing.assert_array_equal(indices, alone[0])
        np.testing.assert_array_equal(scores, alone[1])
    assert (found[3][0] == -1).all()


@pytest.mark.parametrize("levels", [3, 50, 100_000])
def test_of_many_labels_few_are_looked_at(monkeypatch, levels):
    values = np.random.default_rng(5).integers(0, levels, 1003).astype(np.float32)
    many = LinearScorer(csr_matrix((1, 1003), dtype=np.float32), values)
    text = csr_matrix((1, 1), dtype=np.float32)
    expected = np.argsort(-values, kind="stable")
    for parts in (1, 2, 16):
        monkeypatch.setattr(scoring, "_PARTS", parts)
        for k in (1, 7, 15, 1003):
            indices, _ = top_labels(many, text, k)
            np.testing.assert_array_equal(indices[0], expected[:k])


@pytest.mark.parametrize("most_rows", [128, 4])
@pytest.mark.parametrize("infinite", [0.0, 0.4, 1.0])
def test_the_best_of_equal_negative_and_infinite_scores(monkeypatch, most_rows, infinite):
    rng = np.random.default_rng(6)
    values = rng.integers(-3, 3, (9, 100)).astype(np.float32) * np.float32(0.7)
    values[values == 0] *= -1  # −0 is as good as 0
    values[rng.random(values.shape) < infinite] = -np.inf
    monkeypatch.setattr(scoring, "_MOST_ROWS", most_rows)
    for k in (0, 1, 5, 100):
        indices, scores = LabelSet(k).best(values, slice(0, 9))
        expected = np.argsort(-values, axis=1, kind="stable")[:, :k]
        there = np.isfinite(scores)
        np.testing.assert_array_equal(scores, np.take_along_axis(values, expected, axis=1))
        np.testing.assert_array_equal(indices, np.where(there, expected, -1))


@pytest.mark.parametrize("bounds", [np.int32, np.int64])
def test_the_dense_product_is_that_of_the_sparse_matrices(bounds):
    rng = np.random.default_rng(3)
    left = random_array((30, 200), density=0.1, format="csr", dtype=np.float32, rng=rng)
    right = random_array((200, 50), density=0.2, format="csr", dtype=np.float32, rng=rng)
    left, right = csr_matrix(left), csr_matrix(right)
    left.data[left.indptr[4] : left.indptr[5]] = 0
    right.indptr = right.indptr.astype(bounds)  # wide ones of very large matrices
    empty = csr_matrix((1, 200), dtype=np.float32)
    np.testing.assert_array_equal(dense_product(left, right), (left @ right).toarray())
    assert not dense_product(empty, right).any()


def test_numpy_gives_the_product_of_a_few_texts_without_scipy(monkeypatch):
    rng = np.random.default_rng(3)
    left = csr_matrix(random_array((5, 200), density=0.1, dtype=np.float32, rng=rng))
    right = csr_matrix(random_array((200, 50), density=0.2, dtype=np.float32, rng=rng))
    left.data[left.indptr[4] : left.indptr[5]] = 0
    expected = (left @ right).toarray()
    rows = [SparseRows(m.data, m.indices, m.indptr, m.shape) for m in (left, right)]
    np.testing.assert_array_equal(dense_product(*rows), expected)
    monkeypatch.delitem(sys.modules, "scipy.sparse")
    np.testing.assert_allclose(dense_product(*rows), expected, rtol=1e-6)
    np.testing.assert_allclose(dense_product(rows[0][1:3], rows[1]), expected[1:3], rtol=1e-6)
    assert "scipy.sparse" not in sys.modules
    none = rows[0][2:2]
    assert none.shape == (0, 200)
    assert dense_product(none, rows[1]).shape == (0, 50)


def test_rows_become_scipys_matrix_without_a_copy():
    left = csr_matrix(np.eye(3, dtype=np.float32))
    matrix = as_csr(SparseRows(left.data, left.indices, left.indptr, left.shape))
    assert np.shares_memory(matrix.data, left.data)
    np.testing.assert_array_equal(matrix.toarray(), np.eye(3))
    assert as_csr(left) is left


def test_groups_add_their_scores_to_their_labels():
    model, features = scorer(), texts()
    shared = np.random.default_rng(2).integers(-2, 3, (6, 3)).astype(np.float32)
    narrow = np.array([0, 1, -1, 0, 1, 1, -1, 0, 0], dtype=np.int32)
    wide = np.array([2, 2, -1, 2, 2, 2, -1, -1, 2], dtype=np.int32)
    groups = LabelGroups(csr_matrix(shared), np.stack([narrow, wide], axis=1))
    grouped = replace(model, groups=groups)
    whole = model.weights.toarray()
    for of in (narrow, wide):
        whole[:, of >= 0] += shared[:, of[of >= 0]]
    dense = features.toarray() @ whole + model.biases
    np.testing.assert_array_equal(grouped.scores(features), dense)
    text = features[2]
    for label in range(9):
        parts = text.data * whole[text.indices, label]
        np.testing.assert_array_equal(grouped.parts(label, text), parts)


def test_many_texts_take_scipys_compiled_functions_though_chunks_are_small(monkeypatch):
    monkeypatch.setattr(scoring, "CHUNK_CELLS", 30)
    monkeypatch.setattr(scoring, "_numpy_product", None)  # would fail
    monkeypatch.delitem(sys.modules, "scipy.sparse")
    features = texts(65)
    rows = SparseRows(features.data, features.indices, features.indptr, features.shape)
    assert top_labels(scorer(), rows, 3)[0].shape == (65, 3)
