"""Thresholds for a precision, a number of labels per text, and per label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.log_odds import log_odds, sigmoid
from glocal.ranking.decision import Decision
from glocal.ranking.decision_fit import Goal, decision_scores, fit_decision, fit_label_decision
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
