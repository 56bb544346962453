"""Weights of experts against scikit-learn's logistic regression, and what they must not do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from glocal.predict.combining import Pool, fit_weights
from glocal.predict.pool import distinct_labels, scores_at
from glocal.predict.predictions import Predictions
from glocal.systems.combination import Combination


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def make_pool(*, documents=400, labels=12, useful=(1.0, 0.5), seed=0):
    """Experts whose log-odds tell of the gold labels by the given slopes."""
    random = np.random.default_rng(seed)
    truth = random.normal(-1.0, 2.0, (documents, labels))
    gold = random.random((documents, labels)) < sigmoid(truth)
    pooled = np.tile(np.arange(labels, dtype=np.int64), (documents, 1))
    scored = {
        f"E{i}": Predictions.from_unsorted(
            pooled,
            sigmoid(slope * truth + random.normal(0, 1.0, truth.shape)).astype(np.float32),
            labels,
        )
        for i, slope in enumerate(useful)
    }
    return Pool(pooled, scored, list(scored)), sp.csr_matrix(gold.astype(np.int8))


def test_agrees_with_a_logistic_regression():
    linear_model = pytest.importorskip("sklearn.linear_model")
    pool, gold = make_pool()
    weights, bias = fit_weights(pool, gold)
    rows = np.diff(gold.indptr) > 0
    expected = linear_model.LogisticRegression(C=1e6, tol=1e-8).fit(
        pool.log_odds[rows].reshape(-1, 2), pool.hits(gold)[rows].ravel()
    )
    assert list(weights.values()) == pytest.approx(expected.coef_[0], abs=5e-3)
    assert bias == pytest.approx(expected.intercept_[0], abs=5e-3)


def test_an_expert_that_is_wrong_gets_no_weight():
    pool, gold = make_pool(useful=(1.0, -1.0))
    weights, _ = fit_weights(pool, gold)
    assert weights["E0"] > 0.5
    assert weights["E1"] == 0.0


def test_nothing_to_learn_from_documents_without_hits():
    pool, gold = make_pool(documents=20)
    assert fit_weights(pool, sp.csr_matrix(gold.shape, dtype=np.int8)) is None


def test_pooled_predictions_are_those_of_the_combination():
    pool, gold = make_pool(documents=30)
    weights, bias = fit_weights(pool, gold)
    found = pool.combined(weights, bias, 5)
    logits = [torch.from_numpy(pool.log_odds[:, :, i]) for i in range(2)]
    expected = Combination(weights, bias)(pool.names, logits).numpy()
    best = Predictions.from_unsorted(pool.labels, expected.astype(np.float32), 5)
    assert np.array_equal(found.indices, best.indices)
    assert np.allclose(found.scores, best.scores, atol=1e-6)


def test_without_weights_the_mean_of_the_probabilities():
    logits = [torch.tensor([[-2.0, 3.0]]), torch.tensor([[1.0, 0.5]])]
    expected = (torch.sigmoid(logits[0]) + torch.sigmoid(logits[1])) / 2
    assert torch.allclose(Combination()(["a", "b"], logits), expected)


def test_infinite_log_odds_stay_numbers():
    logits = [torch.tensor([float("inf"), -float("inf")]), torch.tensor([0.0, 0.0])]
    found = Combination({"a": 0.0, "b": 1.0}, 0.5)(["a", "b"], logits)
    assert torch.allclose(found, torch.sigmoid(torch.tensor([0.5, 0.5])))


def test_combination_is_stored_as_it_was():
    combination = Combination({"D-last": 0.5, "A-1": 0.25}, -0.3)
    assert Combination.from_mapping(combination.to_mapping()) == combination


@given(st.lists(st.lists(st.integers(-1, 6), min_size=4, max_size=4), min_size=1, max_size=5))
def test_distinct_labels_are_the_set_of_each_row(rows):
    found = distinct_labels(np.array(rows, dtype=np.int64))
    for row, labels in zip(rows, found.tolist(), strict=True):
        kept = [label for label in labels if label >= 0]
        assert kept == sorted({label for label in row if label >= 0})
        assert labels == kept + [-1] * (len(labels) - len(kept))


def test_scores_come_back_in_the_order_of_the_labels():
    labels = np.array([[2, 5, 7], [1, 4, -1]])
    scored = Predictions(
        np.array([[7, 2, 5], [4, 1, -1]]),
        np.array([[0.9, 0.5, 0.1], [0.8, 0.2, -np.inf]], dtype=np.float32),
    )
    assert scores_at(labels, scored).tolist() == [
        pytest.approx([0.5, 0.1, 0.9]),
        pytest.approx([0.2, 0.8, -np.inf]),
    ]
