"""The canonical order of top-k lists."""

import numpy as np

from glocal.metrics.topk_order import sort_topk

INF = np.inf


def test_sorts_by_score_then_label():
    indices, scores = sort_topk(np.array([[5, 3, 9, 1]]), np.array([[0.5, 0.9, 0.5, 0.1]]))
    assert indices.tolist() == [[3, 5, 9, 1]]
    assert indices.dtype == np.int64
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, [[0.9, 0.5, 0.5, 0.1]], rtol=1e-6)


def test_ties_that_only_single_precision_makes_are_ties():
    indices, _ = sort_topk(np.array([[2, 1]]), np.array([[0.5 + 1e-12, 0.5]]))
    assert indices.tolist() == [[1, 2]]


def test_empty_slots_go_last_even_behind_minus_infinity():
    indices, scores = sort_topk(np.array([[-1, 4, -1, 2]]), np.array([[9.0, -INF, 9.0, 0.0]]))
    assert indices.tolist() == [[2, 4, -1, -1]]
    assert scores.tolist() == [[0.0, -INF, -INF, -INF]]


def test_label_zero_is_a_label():
    indices, scores = sort_topk(np.array([[0, 1], [-1, 0]], np.int32), np.array([[1, 2], [3, 4.0]]))
    assert indices.tolist() == [[1, 0], [0, -1]]
    assert indices.dtype == np.int64
    assert scores.tolist() == [[2, 1], [4, -INF]]
    indices, _ = sort_topk(np.array([[1, 0, -1]]), np.array([[0.5, 0.9, 1.0]]))
    assert indices.tolist() == [[0, 1, -1]]


def test_keeps_the_first_k():
    indices, _ = sort_topk(np.array([[0, 1, 2]]), np.array([[0.1, 0.3, 0.2]]), 2)
    assert indices.tolist() == [[1, 2]]
