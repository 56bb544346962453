"""Beta calibration."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from scipy import sparse

from glocal.metrics.reliability import expected_calibration_error
from glocal.ranking.calibration import Calibration, calibrate, fit_calibration, fit_calibration_to
from glocal.ranking.predictions import Predictions


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def temperature(value):
    return Calibration(1 / value, 1 / value)


@pytest.mark.parametrize(
    "truth", [Calibration(), temperature(0.5), temperature(2.5), Calibration(1.3, 0.3, 0.8)]
)
def test_recovers_what_made_the_outcomes(truth):
    rng = np.random.default_rng(0)
    scores = sigmoid(rng.normal(0, 2, (40_000, 5))).astype(np.float32)
    hits = rng.random(scores.shape) < truth(scores)
    found = fit_calibration(scores, hits)
    assert found.low == pytest.approx(truth.low, abs=0.04)
    assert found.high == pytest.approx(truth.high, abs=0.04)
    assert found.shift == pytest.approx(truth.shift, abs=0.04)


def test_is_the_minimum_of_the_log_loss():
    rng = np.random.default_rng(1)
    scores = rng.random((20_000, 5))
    hits = rng.random(scores.shape) < scores**2

    def loss(calibration):
        p = calibration(scores).astype(np.float64)
        return -np.mean(np.log(np.where(hits, p, 1 - p)))

    best = fit_calibration(scores, hits)
    for low, high, shift in [(0.05, 0, 0), (0, 0.05, 0), (0, 0, 0.05)]:
        for sign in (1, -1):
            other = Calibration(
                best.low + sign * low, best.high + sign * high, best.shift + sign * shift
            )
            assert loss(best) < loss(other)


def test_lowers_the_calibration_error_of_scores_wrong_at_one_end():
    """A temperature could not: small scores are right, large ones are too large."""
    rng = np.random.default_rng(2)
    scores = rng.random((5000, 5))
    hits = rng.random(scores.shape) < scores * (1 - 0.3 * scores**2)
    scaled = fit_calibration(scores, hits)(scores)
    before = expected_calibration_error(scores, hits).value
    assert expected_calibration_error(scaled, hits).value < before / 4


@pytest.mark.parametrize(
    ("scores", "hits"),
    [
        (np.empty((0, 5)), np.empty((0, 5), dtype=bool)),
        (np.full((3, 2), 0.9), np.zeros((3, 2), dtype=bool)),
        (np.full((3, 2), 0.9), np.ones((3, 2), dtype=bool)),
        (np.array([[0.9, -np.inf]]), np.array([[True, False]])),
    ],
)
def test_without_both_outcomes_there_is_nothing_to_learn(scores, hits):
    assert fit_calibration(scores, hits) == Calibration()


def test_scores_of_zero_and_one_are_met():
    scores = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 0.5]])
    right = np.array([[True, False, True], [True, False, False]])
    for hits in (right, ~right):
        scaled = fit_calibration(scores, hits)(scores)
        assert np.isfinite(scaled).all()
        assert ((scaled >= 0) & (scaled <= 1)).all()


def test_a_few_entries_change_little():
    for scores in ([[0.9, 0.2]], [[1.0, 0.2]], [[0.9999, 0.0]]):
        found = fit_calibration(np.array(scores), np.array([[False, True]]))
        assert 0.5 < found.low < 1.0
        assert 0.5 < found.high < 1.0
        assert abs(found.shift) < 0.1


def test_empty_slots_take_no_part():
    rng = np.random.default_rng(3)
    scores, hits = rng.random((50, 2)), rng.random((50, 2)) < 0.5
    padded = np.hstack([scores, np.full((50, 1), -np.inf)])
    padded_hits = np.hstack([hits, np.zeros((50, 1), dtype=bool)])
    assert fit_calibration(padded, padded_hits) == fit_calibration(scores, hits)
    assert temperature(2.0)(padded)[0, 2] == -np.inf


def test_fits_the_best_of_predictions_and_leaves_documents_without_gold_out():
    rng = np.random.default_rng(4)
    scores = -np.sort(-rng.random((40, 3)).astype(np.float32), axis=1)
    found = Predictions(np.tile(np.array([2, 0, 1]), (40, 1)), scores)
    gold = rng.random((40, 4)) < 0.5
    gold[:, 3] = True
    gold[:10] = False
    expected = fit_calibration(scores[10:, :2], gold[10:][:, [2, 0]])
    assert fit_calibration_to(found, sparse.csr_matrix(gold), depth=2) == expected


def test_closed_form():
    scaled = temperature(2.0)(np.array([[0.9, 0.5, 0.1]]))
    np.testing.assert_allclose(scaled, [[0.75, 0.5, 0.25]], rtol=1e-6)
    assert scaled.dtype == np.float32
    assert temperature(2.0)(np.float32(0.9)) == pytest.approx(0.75)
    bent = Calibration(2.0, 0.5, 0.1)(np.array([0.8]))
    expected = sigmoid(2.0 * np.log(0.8) - 0.5 * np.log(0.2) + 0.1)
    np.testing.assert_allclose(bent, [expected], rtol=1e-6)


def test_by_default_nothing_changes():
    scores = np.array([[1.0, 0.9, 0.0]], dtype=np.float32)
    assert np.array_equal(Calibration()(scores), scores)


probabilities = hnp.arrays(np.float32, (3, 6), elements=st.floats(0, 1, width=32))
stretches = st.floats(0.05, 20)


@settings(max_examples=100, deadline=None)
@given(probabilities, stretches, stretches, st.floats(-5, 5))
def test_order_and_ties_are_kept(scores, low, high, shift):
    scores = -np.sort(-scores, axis=1)
    scaled = Calibration(low, high, shift)(scores)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert np.array_equal(np.sign(np.diff(scaled)), np.sign(np.diff(scores)))


def test_scores_that_rounding_would_join_stay_apart():
    # Cooled down, both would be exactly 1 and the label index would decide.
    sharp = Predictions(np.array([[9, 2]]), np.array([[0.99999, 0.9999]], dtype=np.float32))
    cooled = calibrate(sharp, temperature(0.05))
    assert cooled.indices.tolist() == [[9, 2]]
    assert cooled.scores[0, 1] < cooled.scores[0, 0]


@pytest.mark.parametrize("stretch", [0.0, -1.0, float("nan")])
def test_what_would_turn_the_order_around_is_refused(stretch):
    for pair in ((stretch, 1.0), (1.0, stretch)):
        with pytest.raises(ValueError, match="must be above 0"):
            Calibration(*pair)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        fit_calibration(np.ones((2, 2)), np.ones((2, 3), dtype=bool))
