import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array

from glocal.companions.sparse import compact_rows
from glocal.companions.sparse.compact_rows import LABELS_OF_HALF, CompactRows, rounded
from glocal.companions.sparse.sparse_files import read_model, write_model
from glocal.companions.sparse.sparse_rows import as_csr, column_of
from glocal.companions.sparse.sparse_scoring import LinearScorer, _numpy_product, dense_product
from glocal.companions.sparse.vectoriser import Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.config import SparseConfig


def matrix(n_rows=40, n_labels=30, *, seed=0, spread=3.0):
    """Weights whose size differs from label to label by several powers of two."""
    rng = np.random.default_rng(seed)
    found = random_array((n_rows, n_labels), density=0.3, rng=rng, format="csr")
    found = csr_matrix(found, dtype=np.float32)
    found.data = rng.normal(size=len(found.data)).astype(np.float32)
    found.data *= np.exp(spread * rng.normal(size=n_labels)).astype(np.float32)[found.indices]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_rounded_weights_are_within_half_a_step_of_their_label(seed):
    weights = matrix(seed=seed)
    near = rounded(weights)
    largest = abs(weights).max(axis=0).toarray().ravel()
    step = largest[weights.indices] / 16_384
    assert (np.abs(near.data - weights.data) <= step / 2 * (1 + 1e-6)).all()
    np.testing.assert_array_equal(near.indices, weights.indices)
    assert weights.data is not near.data
    in_place = rounded(weights, in_place=True)
    np.testing.assert_array_equal(in_place.data, near.data)
    assert np.shares_memory(in_place.data, weights.data)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 8.0]))
@settings(max_examples=50, deadline=None)
def test_rounding_again_changes_nothing(seed, spread):
    once = rounded(matrix(8, 6, seed=seed, spread=spread))
    np.testing.assert_array_equal(rounded(once).data, once.data)
    np.testing.assert_array_equal(CompactRows.of(once).as_rows().data, once.data)


def test_a_label_whose_largest_number_is_the_largest_of_all_keeps_its_scale():
    weights = csr_matrix(np.array([[32_767.0], [16_384.4], [1.0]], np.float32) / 4096)
    once = rounded(weights)
    np.testing.assert_array_equal(once.toarray().ravel() * 4096, [32_767, 16_384, 1])
    np.testing.assert_array_equal(rounded(once).data, once.data)


def test_weights_that_are_not_rounded_have_no_compact_form():
    weights = matrix()
    assert CompactRows.of(weights) is None
    compact = CompactRows.of(rounded(weights))
    assert CompactRows.of(compact) is compact


@pytest.mark.parametrize("half", [LABELS_OF_HALF, 16])
def test_scores_are_those_of_float32_to_the_last_bit(half, monkeypatch):
    """With fewer labels than `half` numbers and labels share 32 bits."""
    monkeypatch.setattr(compact_rows, "LABELS_OF_HALF", half)
    weights, texts = rounded(matrix()), abs(matrix(100, 40, seed=1, spread=0))
    compact = CompactRows.of(weights)
    assert (compact.numbers is None) == (half > 30)
    expected = dense_product(texts, weights)
    np.testing.assert_array_equal(dense_product(texts, compact), expected)
    np.testing.assert_allclose(_numpy_product(texts, compact), expected, rtol=1e-5)
    np.testing.assert_array_equal(compact.labels, weights.indices)
    np.testing.assert_array_equal(as_csr(compact).toarray(), weights.toarray())
    rows = np.array([3, 0, 39, 3])
    np.testing.assert_array_equal(as_csr(compact.take(rows)).toarray(), weights.toarray()[rows])
    np.testing.assert_array_equal(column_of(compact, rows, 7), weights.toarray()[rows, 7])


def test_labels_without_weights_and_rows_without_labels():
    weights = csr_matrix(np.array([[0, 0, 0], [0, 2.5, 0], [0, 0, 0]], np.float32))
    compact = CompactRows.of(rounded(weights))
    np.testing.assert_array_equal(compact.scales[[0, 2]], [1, 1])
    np.testing.assert_array_equal(as_csr(compact).toarray(), weights.toarray())
    np.testing.assert_array_equal(
        dense_product(csr_matrix(np.eye(3, dtype=np.float32)), compact), weights.toarray()
    )


def stored(folder, weights):
    words = [f"w{row:02d}" for row in range(weights.shape[0])]
    vocabulary = Vocabulary(words, np.empty(0, np.int64), np.ones(len(words), np.float32))
    scorer = LinearScorer(weights, np.zeros(weights.shape[1], np.float32))
    write_model(folder, Vectoriser([Part("text", 1.0, vocabulary)]), scorer, SparseConfig())
    return read_model(folder)[1].weights


@pytest.mark.parametrize("n_labels", [30, LABELS_OF_HALF + 5])
def test_files_hold_the_weights_exactly(tmp_path, n_labels):
    weights = rounded(csr_matrix(matrix(), shape=(40, n_labels)))
    found = stored(tmp_path / "model", weights)
    assert isinstance(found, CompactRows)
    assert isinstance(found.entries, np.memmap)
    np.testing.assert_array_equal(as_csr(found).data, weights.data)
    np.testing.assert_array_equal(as_csr(found).indices, weights.indices)
    assert (tmp_path / "model" / "weights-numbers.npy").exists() == (n_labels > LABELS_OF_HALF)


def test_weights_of_older_models_stay_in_float32(tmp_path):
    weights = matrix()
    found = stored(tmp_path / "model", weights)
    np.testing.assert_array_equal(found.data, weights.data)
    assert not list((tmp_path / "model").glob("weights-scales*"))
