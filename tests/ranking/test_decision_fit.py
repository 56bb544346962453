"""Thresholds for a precision, a number of labels per text, and per label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.log_odds import log_odds, sigmoid
from glocal.ranking.decision import Decision
from glocal.ranking.decision_fit import (
    Goal,
    _between,
    _cross_fitted,
    _fit_shifts,
    _Proposed,
    decision_scores,
    fit_decision,
    fit_label_decision,
)
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.label_space import LabelSpace
from tests.ranking.test_decision import made


@given(st.integers(0, 300), st.floats(0.05, 0.6))
def test_the_lowest_threshold_with_the_precision(seed, precision):
    predictions, gold = made(seed)
    try:
        found = fit_decision(predictions, gold, goal=Goal(precision), at_least=0)
    except ConfigError:
        found = None
    reached = [
        scores.recall
        for threshold in np.arange(0, 1.01, 0.005)
        if (scores := decision_scores(Decision(threshold, 0), predictions, gold)).precision
        >= precision
        and scores.tags_per_text
    ]
    if found is None:
        assert not reached
        return
    scores = decision_scores(found, predictions, gold)
    assert scores.precision >= precision
    assert scores.recall >= max(reached, default=0.0) - 1e-12


@pytest.mark.parametrize("wanted", [1, 2.5, 4])
def test_labels_per_text(wanted):
    predictions, gold = made(0, n=200)
    found = fit_decision(predictions, gold, goal=Goal(labels_per_text=wanted))
    scores = decision_scores(found, predictions, gold)
    assert scores.tags_per_text == pytest.approx(wanted, abs=0.06)  # scores have two digits


def test_goals_out_of_reach():
    predictions, gold = made(0)
    with pytest.raises(ConfigError, match=r"a precision of 0.99 .* the highest is 0\.\d+"):
        fit_decision(predictions, gold, goal=Goal(0.99), at_least=1)
    with pytest.raises(ConfigError, match=r"can have 1.00 to 6.00 tags on average"):
        fit_decision(predictions, gold, goal=Goal(labels_per_text=7))


def test_scores_of_a_decision():
    predictions = Predictions.from_unsorted(
        np.array([[0, 1], [1, 2], [0, 2]]), np.array([[0.9, 0.8], [0.7, 0.2], [0.3, 0.1]])
    )
    gold = sparse.csr_matrix([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]])
    scores = decision_scores(Decision(0.5, 0), predictions, gold)
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(2 / 4)
    assert scores.f1 == pytest.approx(4 / 7)
    assert scores.tags_per_text == 1.0
    assert scores.without_tags == pytest.approx(1 / 3)


def skewed(n=4000, seed=0):
    """Label 0 is right more often than its score says, label 1 less often; label 2 is rare."""
    rng = np.random.default_rng(seed)
    shift = np.array([1.5, -1.5, 1.5, 0.0])
    p = rng.uniform(0.05, 0.95, (n, 4))
    p[4:, 2] = 1e-9  # proposed four times
    true = sigmoid(log_odds(p) + shift)
    gold = sparse.csr_matrix(rng.random((n, 4)) < true)
    labels = LabelSpace.build(Corpus.from_texts(["a"], [["l0", "l1", "l2", "l3"]]))
    indices = np.where(p > 1e-6, np.arange(4), -1)
    return Predictions.from_unsorted(indices, np.where(p > 1e-6, p, -np.inf), labels=labels), gold


def test_labels_get_thresholds_of_their_own():
    predictions, gold = skewed()
    common = fit_decision(predictions, gold, goal=Goal())
    own, scores = fit_label_decision(predictions, gold, goal=Goal())
    assert own.own["l0"] < own.threshold - 0.1
    assert own.own["l1"] > own.threshold + 0.1
    assert abs(own.own.get("l3", own.threshold) - own.threshold) < 0.1
    # A rare label stays near the common threshold: four texts say little.
    assert abs(own.own.get("l2", own.threshold) - own.threshold) < abs(
        own.own["l0"] - own.threshold
    )
    assert own.micro_f1 == pytest.approx(scores.f1)  # of the shifted probabilities
    fresh, truth = skewed(seed=1)
    assert decision_scores(own, fresh, truth).f1 > decision_scores(common, fresh, truth).f1 + 0.02
    assert decision_scores(own, fresh, truth).f1 == pytest.approx(scores.f1, abs=0.02)


def test_calibrated_labels_keep_the_common_threshold():
    rng = np.random.default_rng(0)
    labels = LabelSpace.build(Corpus.from_texts(["a"], [[f"l{i}" for i in range(40)]]))
    p = rng.beta(0.3, 1.0, (400, 40))
    gold = sparse.csr_matrix(rng.random(p.shape) < p)
    indices = np.tile(np.arange(40), (400, 1))
    predictions = Predictions.from_unsorted(indices, p, labels=labels)
    decision, scores = fit_label_decision(predictions, gold, goal=Goal(0.8), at_least=0)
    assert all(abs(own - decision.threshold) < 0.1 for own in decision.own.values())
    assert scores.precision >= 0.8


def test_own_thresholds_are_applied_and_stored():
    predictions, _ = skewed(n=5)
    decision = Decision(0.5, 0, own={"l0": 0.0, "l1": 1.0, "gone": 0.2}, goal="x", n_texts=3)
    tags = [set(decision(predictions).label_ids(row)) for row in range(5)]
    assert all("l0" in own and "l1" not in own for own in tags)
    assert decision.lowest == 0.0
    assert Decision.from_mapping(decision.to_mapping()) == decision
    assert decision.renamed({"l0": "new"}).own == {"new": 0.0, "l1": 1.0, "gone": 0.2}
    assert decision.restricted({"l1"}).own == {"l1": 1.0}


def test_only_thresholds_that_differ_are_stored_with_six_digits():
    """Label 0 is right nine times in ten at one half, label 1 five times, as its scores say."""
    space = LabelSpace.build(Corpus.from_texts(["a"], [["l0", "l1"]]))
    number = np.arange(200) % 10
    gold = np.stack([number < 9, (number < 4) | (number == 9)], axis=1)
    scores = np.full((200, 2), 0.5, np.float32)
    found = Predictions.from_unsorted(np.tile([0, 1], (200, 1)), scores, labels=space)
    decision, _ = fit_label_decision(found, sparse.csr_matrix(gold), goal=Goal(), at_least=0)
    assert list(decision.own) == ["l0"]
    assert decision.own["l0"] < decision.threshold - 0.005
    assert decision.own["l0"] == round(decision.own["l0"], 6)


@pytest.mark.parametrize(("true", "width"), [(0.0, 0.125), (0.3, 0.25), (0.5, 0.5), (2.0, 1.0)])
def test_the_prior_is_as_wide_as_the_labels_differ(true, width):
    rng = np.random.default_rng(0)
    n_labels, each = 150, 120
    labels = np.repeat(np.arange(n_labels), each)
    texts = np.tile(np.arange(each), n_labels)
    odds = rng.normal(0, 1, len(labels))
    moved = odds + rng.normal(0, true, n_labels)[labels]
    hits = rng.random(len(labels)) < sigmoid(moved)
    proposed = _Proposed(texts, labels, sigmoid(odds), hits, hits & False, each, int(hits.sum()))
    probabilities, found = _cross_fitted(proposed, labels, n_labels, 0)
    assert found in (width, 0.0 if true == 0.0 else width)
    if true:
        close = np.abs(log_odds(probabilities) - moved).mean()
        assert close < 0.5 * np.abs(odds - moved).mean() + 0.1


@pytest.mark.parametrize("width", [0.25, 1.0])
def test_shifts_are_the_most_likely_ones(width):
    rng = np.random.default_rng(1)
    odds, places = rng.normal(0, 1, 60), np.repeat([0, 1, 2], 20)
    hits = np.concatenate([np.ones(20), rng.random(20) < 0.5, np.zeros(20)]).astype(bool)

    def objective(shifts):
        z = odds + shifts[places]
        return np.logaddexp(0, np.where(hits, -z, z)).sum() + (shifts**2).sum() / (2 * width**2)

    best = minimize(objective, np.zeros(4), tol=1e-12).x
    found = _fit_shifts(odds, hits, places, 4, width)
    np.testing.assert_allclose(found, best, atol=1e-5)
    assert found[3] == 0.0
    assert not _fit_shifts(odds, hits, places, 4, 0.0).any()


def test_one_gold_label_is_all_there_is_to_recall():
    found = Predictions(np.array([[1, 0]]), np.array([[0.9, 0.2]], np.float32))
    scores = decision_scores(Decision(0.5, 0), found, sparse.csr_matrix([[0, 1]]))
    assert (scores.precision, scores.recall, scores.f1) == (1.0, 1.0, 1.0)
    assert (scores.tags_per_text, scores.without_tags) == (1.0, 0.0)


def test_without_a_hit_the_number_of_tags_asked_for_is_kept():
    found = Predictions(np.array([[0]]), np.array([[0.4]], np.float32))
    gold = sparse.csr_matrix([[0, 1]])
    assert fit_decision(found, gold, at_least=3) == Decision(at_least=3)
    assert fit_decision(found, gold) == Decision(at_least=1)
    for at_least in (0, 1):
        decision, scores = fit_label_decision(found, gold, goal=Goal(), at_least=at_least)
        assert decision == Decision(at_least=at_least)
        assert scores.tags_per_text == at_least


def test_every_label_may_be_asked_for_or_only_those_that_are_always_given():
    predictions, gold = made(0)
    for wanted, at_least in ((6, 1), (1, 1), (2, 2)):
        goal = Goal(labels_per_text=wanted)
        found = fit_decision(predictions, gold, goal=goal, at_least=at_least)
        assert decision_scores(found, predictions, gold).tags_per_text == wanted


def test_folds_are_drawn_by_the_seed_which_is_0_by_default():
    predictions, gold = skewed(n=60)
    found = [
        fit_label_decision(predictions, gold, goal=Goal(), **options)[1]
        for options in ({}, {"seed": 0}, {"seed": 1})
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_a_threshold_lies_between_two_scores_or_at_the_upper_one():
    assert _between(np.array([0.75, 0.25]), 1) == 0.5
    upper = np.nextafter(0.5, 1.0)  # nothing lies between
    assert _between(np.array([upper, 0.5]), 1) == upper
    assert _between(np.array([0.5, 0.25]), 0) == 0.75
    assert _between(np.array([0.5, 0.25]), 2) == 0.125
