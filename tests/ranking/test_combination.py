"""Weights of experts against scikit-learn's logistic regression, and what they must not do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from glocal.ranking import combination as combining
from glocal.ranking.combination import Combination, fit_weights
from glocal.ranking.logistic import fit_logistic, log_loss
from glocal.ranking.pool import Pool, distinct_labels, scores_at
from glocal.ranking.predictions import Predictions


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def make_pool(*, documents=400, labels=12, useful=(1.0, 0.5), frequency=-0.4, counts=None, seed=0):
    """Experts whose log-odds tell of the gold labels by the given slopes, rare labels too low."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 500, labels) if counts is None else counts
    seen = random.normal(-1.0, 2.0, (documents, labels))
    truth = seen + frequency * np.log(np.maximum(counts, 1))
    gold = random.random((documents, labels)) < sigmoid(truth)
    pooled = np.tile(np.arange(labels, dtype=np.int64), (documents, 1))
    scored = {
        f"E{i}": Predictions.from_unsorted(
            pooled,
            sigmoid(slope * seen + random.normal(0, 1.0, seen.shape)).astype(np.float32),
            labels,
        )
        for i, slope in enumerate(useful)
    }
    return Pool.from_predictions(pooled, scored, counts), sp.csr_matrix(gold.astype(np.int8))


def exact_pool(weight, frequency, bias, *, documents=2000):
    """One expert and four labels that are gold exactly as often as a combination says."""
    log_odds, counts = np.array([-1.0, 1.0, -1.0, 1.0]), np.array([1, 1, 50, 50])
    share = sigmoid(weight * log_odds + frequency * np.log(counts) + bias)
    gold = np.arange(documents)[:, None] < np.round(documents * share)
    # A gold label outside the space, so that no document is left out.
    gold = np.column_stack([gold, np.ones(documents, bool)])
    pooled = np.tile(np.arange(4), (documents, 1))
    scores = np.tile(sigmoid(log_odds).astype(np.float32), (documents, 1))
    scored = {"E": Predictions.from_unsorted(pooled, scores, 4)}
    return Pool.from_predictions(pooled, scored, counts), sp.csr_matrix(gold.astype(np.int8))


@pytest.fixture
def no_prior(monkeypatch):
    monkeypatch.setattr(combining, "_WEIGHT_PRIOR", 0.0)
    monkeypatch.setattr(combining, "_FREQUENCY_PRIOR", 0.0)


@pytest.mark.usefixtures("no_prior")
def test_agrees_with_a_logistic_regression():
    linear_model = pytest.importorskip("sklearn.linear_model")
    pool, gold = make_pool()
    found = fit_weights(pool, gold)
    rows = np.diff(gold.indptr) > 0
    features = np.concatenate([pool.log_odds, pool.log_counts[..., None]], axis=-1)[rows]
    expected = linear_model.LogisticRegression(C=1e6, tol=1e-8).fit(
        features.reshape(-1, 3), pool.hits(gold)[rows].ravel()
    )
    learnt = [*found.weights.values(), found.frequency]
    assert learnt == pytest.approx(expected.coef_[0], abs=5e-3)
    assert found.bias == pytest.approx(expected.intercept_[0], abs=5e-3)


@pytest.mark.usefixtures("no_prior")
@pytest.mark.parametrize("frequency", [-0.4, 0.0, 0.3])
def test_the_frequency_term_is_the_one_the_gold_labels_follow(frequency):
    found = fit_weights(*exact_pool(0.7, frequency, -0.2))
    assert found.weights["E"] == pytest.approx(0.7, abs=5e-3)
    assert found.frequency == pytest.approx(frequency, abs=5e-3)
    assert found.bias == pytest.approx(-0.2, abs=5e-3)


@pytest.mark.parametrize("counts", [np.full(12, 7), np.array([0, 1] * 6)])
def test_no_frequency_term_where_labels_are_equally_frequent(counts):
    pool, gold = make_pool(counts=counts)
    found = fit_weights(pool, gold)
    assert found.frequency == 0.0
    pool.log_counts[:] = 0.0
    assert fit_weights(pool, gold) == found


def test_no_frequency_term_where_counts_are_not_known():
    pool, gold = make_pool(documents=50)
    scored = {
        name: Predictions.from_unsorted(
            pool.labels, sigmoid(pool.log_odds[..., i]).astype(np.float32), 12
        )
        for i, name in enumerate(pool.names)
    }
    assert fit_weights(Pool.from_predictions(pool.labels, scored), gold).frequency == 0.0
    assert fit_weights(pool, gold).frequency < -0.1


def test_empty_places_of_the_pool_teach_nothing():
    pool, gold = make_pool(documents=100)
    expected = fit_weights(pool, gold)
    empty = np.full((100, 1), -1)
    wider = replace(
        pool,
        labels=np.concatenate([pool.labels, empty], axis=1),
        log_odds=np.concatenate([pool.log_odds, np.full((100, 1, 2), -9.0)], axis=1),
        log_counts=np.concatenate([pool.log_counts, np.full((100, 1), 4.0)], axis=1),
    )
    assert fit_weights(wider, gold) == expected


def test_gradient_by_finite_differences():
    random = np.random.default_rng(0)
    features, outcomes = random.normal(0, 3, (50, 4)), random.integers(0, 2, 50).astype(float)
    for _ in range(5):
        error = check_grad(
            lambda x: log_loss(x, features, outcomes)[0],
            lambda x: log_loss(x, features, outcomes)[1],
            random.normal(0, 1, 4),
        )
        assert error < 1e-6


def test_the_objective_is_smallest_where_the_fit_ends():
    random = np.random.default_rng(1)
    features, outcomes = random.normal(0, 1, (40, 3)), random.integers(0, 2, 40).astype(float)
    start, prior, penalty = np.array([0.5, -1.0, 0.0]), np.array([5.0, 0.0, 2.0]), [0.1, 0.0, 0.3]
    free = [(None, None)] * 3
    found = fit_logistic(features, outcomes, start=start, prior=prior, bounds=free, penalty=penalty)

    def objective(x):
        away = (prior * (x - start) ** 2).sum() / 40
        return log_loss(x, features, outcomes)[0] + away + (penalty * x**2).sum()

    best = objective(np.array(found))
    for place in range(3):
        for step in (-1e-2, 1e-2):
            assert best < objective(np.array(found) + step * np.eye(3)[place])


def test_an_expert_that_is_wrong_gets_no_weight():
    pool, gold = make_pool(useful=(1.0, -1.0))
    weights = fit_weights(pool, gold).weights
    assert weights["E0"] > 0.5
    assert weights["E1"] == 0.0


def test_nothing_to_learn_from_documents_without_hits():
    pool, gold = make_pool(documents=20)
    assert fit_weights(pool, sp.csr_matrix(gold.shape, dtype=np.int8)) is None


def test_what_was_learnt_has_a_smaller_loss_than_its_neighbours():
    pool, gold = make_pool(documents=60)
    best = fit_weights(pool, gold)
    hits = torch.from_numpy(pool.hits(gold)[np.diff(gold.indptr) > 0]).double()
    logits = [torch.from_numpy(pool.log_odds[np.diff(gold.indptr) > 0, :, i]) for i in range(2)]
    counts = torch.from_numpy(np.exp(pool.log_counts[0]))

    def loss(combination):
        found = combination(pool.names, logits, counts).double()
        return torch.nn.functional.binary_cross_entropy(found, hits).item()

    assert best.frequency < -0.1
    for step in (-0.1, 0.1):
        assert loss(best) < loss(replace(best, frequency=best.frequency + step))
        assert loss(best) < loss(replace(best, bias=best.bias + step))
    assert loss(best) < loss(replace(best, frequency=0.0))


def test_without_weights_the_mean_of_the_probabilities():
    logits = [torch.tensor([[-2.0, 3.0]]), torch.tensor([[1.0, 0.5]])]
    expected = (torch.sigmoid(logits[0]) + torch.sigmoid(logits[1])) / 2
    found = Combination(frequency=-1.0)(["a", "b"], logits, torch.tensor([3.0, 90.0]))
    assert torch.equal(found, expected)


def test_a_slice_of_labels_is_combined_as_their_ids_are():
    counts = torch.tensor([0.0, 1.0, 9.0, 100.0, 3.0])
    logits = [torch.randn(2, 3), torch.randn(2, 3)]
    combination = Combination({"a": 0.7, "b": 0.2}, -0.3, -0.5)
    by_slice = combination(["a", "b"], logits, counts[slice(1, 4)])
    by_ids = combination(["a", "b"], logits, counts[torch.tensor([[1, 2, 3], [1, 2, 3]])])
    assert torch.equal(by_slice, by_ids)
    log_counts = torch.tensor([1.0, 9.0, 100.0]).log()
    expected = torch.sigmoid(0.7 * logits[0] + 0.2 * logits[1] - 0.5 * log_counts - 0.3)
    torch.testing.assert_close(by_slice, expected)


def test_a_label_without_training_texts_counts_as_one_with_a_single_text():
    combination = Combination({"a": 1.0}, 0.0, -0.5)
    none, one = (combination(["a"], [torch.zeros(1, 1)], torch.tensor([m])) for m in (0.0, 1.0))
    assert none.item() == one.item() == 0.5


def test_infinite_log_odds_stay_numbers():
    logits = [torch.tensor([float("inf"), -float("inf")]), torch.tensor([0.0, 0.0])]
    found = Combination({"a": 0.0, "b": 1.0}, 0.5)(["a", "b"], logits, torch.ones(2))
    assert torch.allclose(found, torch.sigmoid(torch.tensor([0.5, 0.5])))


def test_combination_is_stored_as_it_was():
    combination = Combination({"D-last": 0.5, "A-1": 0.25}, -0.3, -0.125)
    assert Combination.from_mapping(combination.to_mapping()) == combination
    before = {"bias": -0.3, "weights": {"D-last": 0.5, "A-1": 0.25}}
    assert Combination.from_mapping(before) == Combination(before["weights"], -0.3, 0.0)


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


def test_a_handful_of_documents_hardly_moves_anything():
    few, many = (make_pool(documents=n, frequency=0.5) for n in (2, 2000))
    found = fit_weights(*few)
    assert 0.0 < found.frequency < 0.15
    assert all(0.2 < weight < 0.8 for weight in found.weights.values())
    assert fit_weights(*many).frequency > 0.4


def test_the_same_documents_give_the_same_weights_as_ever():
    found = fit_weights(*make_pool(documents=60))
    learnt = [*found.weights.values(), found.frequency, found.bias]
    assert learnt == pytest.approx([0.53872, 0.39952, -0.22471, -0.30188], abs=2e-4)


def test_log_odds_beyond_a_hundred_count_as_a_hundred():
    logits = [torch.tensor([1e4, -1e4])]
    found = Combination({"a": 0.01})(["a"], logits, torch.ones(2))
    torch.testing.assert_close(found, torch.sigmoid(torch.tensor([1.0, -1.0])))


def test_a_pool_has_log_odds_and_log_counts_of_its_labels():
    labels = np.array([[2, 5], [1, -1]])
    scored = Predictions(
        np.array([[5, 2], [1, -1]]), np.array([[1.0, 0.0], [0.25, -np.inf]], dtype=np.float32)
    )
    counts = np.array([9, 0, 3, 9, 9, 50])
    pool = Pool.from_predictions(labels, {"a": scored, "b": scored}, counts)
    assert pool.names == ["a", "b"]
    assert pool.filled.tolist() == [[True, True], [True, False]]
    sure = np.log((1 - 1e-7) / 1e-7)
    np.testing.assert_allclose(pool.log_odds[0], [[-sure, -sure], [sure, sure]], rtol=1e-6)
    assert pool.log_odds[1, 0].tolist() == pytest.approx([np.log(1 / 3)] * 2)
    np.testing.assert_allclose(pool.log_counts[pool.filled], np.log([3, 50, 1]))
    gold = sp.csr_matrix(np.array([[1, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]]))
    assert pool.hits(gold).tolist() == [[True, False], [True, False]]
    assert not Pool.from_predictions(labels, {"a": scored}).log_counts.any()


def test_all_hits_or_none_teach_nothing():
    pool, gold = make_pool(documents=20)
    assert fit_weights(pool, sp.csr_matrix(np.ones(gold.shape, dtype=np.int8))) is None
    outside = sp.hstack([sp.csr_matrix(gold.shape), np.ones((20, 1))], format="csr")
    assert fit_weights(pool, outside) is None
    assert fit_weights(*make_pool(useful=(-1.0,))) is None  # no expert deserves a weight


def test_distinct_labels_take_no_more_places_than_the_widest_row():
    assert distinct_labels(np.array([[3, 3], [3, -1]])).tolist() == [[3], [3]]
    assert distinct_labels(np.array([[-1, -1]])).tolist() == [[-1]]
    assert distinct_labels(np.array([[2, 0, 2], [-1, 5, 4]])).tolist() == [[0, 2], [4, 5]]
    assert distinct_labels(np.zeros((0, 3), np.int64)).shape == (0, 1)


def test_hits_of_a_pool_are_gold_labels_at_places_that_are_filled():
    pool = Pool(np.array([[0, 2], [1, -1]]), [], np.zeros((2, 2, 0)), np.zeros((2, 2)))
    gold = sp.csr_matrix([[1, 0, 0, 1], [0, 0, 1, 1]])
    assert pool.hits(gold).tolist() == [[True, False], [False, False]]
    assert pool.filled.tolist() == [[True, True], [True, False]]


def test_rounded_logits_are_combined_in_fp32():
    weighted = Combination({"a": 0.3, "b": 1.7}, 0.1)
    logits = [torch.randn(3, 5).bfloat16() for _ in range(2)]
    counts = torch.ones(5)
    for combination in (weighted, Combination()):
        found = combination(["a", "b"], logits, counts)
        expected = combination(["a", "b"], [z.float() for z in logits], counts)
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)
    exact = {"a": np.zeros((1, 2)), "b": np.ones((1, 2))}  # double precision
    for combination in (weighted, Combination()):
        assert combination.of_arrays(exact, np.ones(2, np.int64)).dtype == np.float32
