"""The nearest vectors: exactly, whatever the batch and however many ties; approximately; stored."""

import sys

import numpy as np
import pytest

from glocal.companions.teacher.vector_index import MOST_TIED, SimilarityIndex
from glocal.errors import MissingExtraError


def clustered(n, width=16, seed=0):
    random = np.random.default_rng(seed)
    centres = random.standard_normal((8, width))
    noise = random.standard_normal((n, width))
    return (centres[random.integers(0, 8, n)] + 0.4 * noise).astype(np.float32)


def brute_force(index, queries, k, exclude):
    scores = queries.astype(np.float64) @ np.asarray(index.vectors, dtype=np.float64).T
    scores = scores.astype(np.float32)
    scores[np.arange(len(queries))[exclude >= 0], exclude[exclude >= 0]] = -1
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1)
    return np.where(best > 0, order, -1), np.maximum(best, 0)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("n", "k"), [(300, 10), (12, 10), (3, 10), (1, 2)])
def test_exact_search_finds_the_nearest(n, k, centred):
    index = SimilarityIndex.of_embedded(clustered(n), centred=centred)
    queries = index.prepare(clustered(40, seed=1))
    exclude = np.random.default_rng(2).integers(-1, n, len(queries))
    rows, similarities = index.search(queries, k, exclude=exclude)
    expected = brute_force(index, queries, k, exclude)
    assert rows.shape == similarities.shape == (40, k)
    width = expected[0].shape[1]
    np.testing.assert_array_equal(rows[:, :width], expected[0])
    np.testing.assert_allclose(similarities[:, :width], expected[1], atol=1e-6)
    assert np.all(rows[:, width:] == -1)
    assert not np.any(rows == np.where(exclude < 0, -2, exclude)[:, None])


def test_the_batch_does_not_matter(monkeypatch):
    index = SimilarityIndex.of_embedded(clustered(500, width=48), centred=True)
    queries = index.prepare(clustered(60, width=48, seed=1))
    together = index.search(queries, 7)
    alone = [index.search(queries[i : i + 1], 7) for i in range(len(queries))]
    for part in (0, 1):
        np.testing.assert_array_equal(together[part], np.concatenate([a[part] for a in alone]))
    monkeypatch.setattr("glocal.companions.teacher.vector_index.BLOCK_ELEMENTS", 500 * 7)
    monkeypatch.setattr("glocal.companions.teacher.vector_index.SETTLED_ELEMENTS", 48 * 15 * 2)
    for found, expected in zip(index.search(queries, 7), together, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["clusters", "no structure", "few directions"])
def test_pruning_misses_nothing(monkeypatch, kind):
    monkeypatch.setattr("glocal.companions.teacher.vector_index.MANY_TEXTS", 100)
    random = np.random.default_rng(0)
    embedded = {
        "clusters": clustered(400, width=32),
        "no structure": random.standard_normal((400, 32)).astype(np.float32),
        "few directions": np.eye(32, dtype=np.float32)[random.integers(0, 3, 400)],
    }[kind]
    index = SimilarityIndex.of_embedded(embedded, centred=False)
    queries = index.prepare(np.concatenate([embedded[:20], np.zeros((1, 32), np.float32)]))
    exclude = np.append(np.arange(20), -1)
    together = index.search(queries, 9, exclude=exclude)
    monkeypatch.setattr(SimilarityIndex, "_propose_by_product", None)
    for number in range(len(queries)):
        one = slice(number, number + 1)
        rows, similarities = index.search(queries[one], 9, exclude=exclude[one])
        np.testing.assert_array_equal(rows, together[0][one])
        np.testing.assert_array_equal(similarities, together[1][one])


def test_ties_are_ordered_by_position_however_many():
    n_equal = 4 * MOST_TIED
    vectors = np.tile(np.float32([[3, 4]]), (n_equal, 1)) * np.arange(1, n_equal + 1)[:, None]
    index = SimilarityIndex.of_embedded(
        np.concatenate([[[1, 0]], vectors, [[4, 3]]]).astype(np.float32), centred=False
    )
    queries = index.prepare(np.float32([[4, 3], [3, 4]]))
    rows, _ = index.search(queries, 5, exclude=np.array([-1, 2]))
    assert rows.tolist() == [[n_equal + 1, 1, 2, 3, 4], [1, 3, 4, 5, 6]]


def test_what_has_no_vector_or_points_away_is_nobodys_neighbour():
    embedded = np.float32([[0, 0], [1, 0], [-1, 0], [0, 1]])
    index = SimilarityIndex.of_embedded(embedded, centred=False)
    rows, similarities = index.search(index.prepare(np.float32([[2, 0], [0, 0]])), 4)
    assert rows.tolist() == [[1, -1, -1, -1], [-1] * 4]
    assert similarities.tolist() == [[1, 0, 0, 0], [0] * 4]


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_approximate_search_finds_most_and_orders_them_exactly(tmp_path, kind):
    pytest.importorskip("faiss")
    embedded = clustered(2000)
    exact = SimilarityIndex.of_embedded(embedded, centred=True)
    index = SimilarityIndex.of_embedded(embedded, centred=True, kind=kind, effort=16)
    queries, exclude = index.prepare(embedded[:100]), np.arange(100)
    rows, similarities = index.search(queries, 10, exclude=exclude)
    expected, _ = exact.search(queries, 10, exclude=exclude)
    found = np.mean([np.isin(e, r).mean() for e, r in zip(expected, rows, strict=True)])
    assert found > 0.9
    assert np.all(np.diff(similarities) <= 0)
    assert not np.any(rows == exclude[:, None])
    index.save(tmp_path)
    loaded = SimilarityIndex.load(tmp_path, embedded.shape[1], kind=kind, effort=16)
    np.testing.assert_array_equal(loaded.search(queries, 10, exclude=exclude)[0], rows)


def test_more_effort_finds_more():
    pytest.importorskip("faiss")
    embedded = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    exact, _ = SimilarityIndex.of_embedded(embedded, centred=False).search(embedded[:50], 10)

    def share(effort):
        index = SimilarityIndex.of_embedded(embedded, centred=False, kind="ivf", effort=effort)
        rows, _ = index.search(index.prepare(embedded[:50]), 10)
        return np.mean([np.isin(e, r).mean() for e, r in zip(exact, rows, strict=True)])

    assert share(1) < share(10) < share(1000) == pytest.approx(1)


def test_without_faiss_the_approximate_search_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[search\]'"):
        SimilarityIndex.of_embedded(clustered(50), centred=True, kind="ivf")
    SimilarityIndex.of_embedded(clustered(50), centred=True)
