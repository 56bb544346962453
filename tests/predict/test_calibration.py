"""Temperature scaling."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from scipy import sparse

from glocal.metrics import expected_calibration_error
from glocal.predict.calibration import (
    apply_temperature,
    calibrate,
    fit_temperature,
    fit_temperature_to,
)
from glocal.predict.predictions import Predictions


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.5])
def test_recovers_the_temperature_that_made_the_outcomes(truth):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20_000, 5))
    hits = rng.random(logits.shape) < sigmoid(logits / truth)
    found = fit_temperature(sigmoid(logits).astype(np.float32), hits)
    assert found == pytest.approx(truth, rel=0.03)


def test_is_the_minimum_of_the_log_loss():
    rng = np.random.default_rng(1)
    scores = rng.random((300, 5))
    hits = rng.random((300, 5)) < scores**2

    def loss(temperature):
        p = apply_temperature(scores, temperature).astype(np.float64)
        return -np.mean(np.log(np.where(hits, p, 1 - p)))

    best = fit_temperature(scores, hits)
    assert loss(best) < min(loss(best * 1.05), loss(best / 1.05))


def test_lowers_the_calibration_error():
    rng = np.random.default_rng(2)
    scores = rng.random((5000, 5))
    hits = rng.random(scores.shape) < sigmoid(np.log(scores / (1 - scores)) / 3)
    scaled = apply_temperature(scores, fit_temperature(scores, hits))
    before = expected_calibration_error(scores, hits).value
    assert expected_calibration_error(scaled, hits).value < before / 5


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
    assert fit_temperature(scores, hits) == 1.0


def test_scores_of_zero_and_one_are_met():
    scores = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 0.5]])
    right = np.array([[True, False, True], [True, False, False]])
    assert fit_temperature(scores, right) == 0.05
    assert fit_temperature(scores, ~right) == 20.0


def test_empty_slots_take_no_part():
    rng = np.random.default_rng(3)
    scores, hits = rng.random((50, 2)), rng.random((50, 2)) < 0.5
    padded = np.hstack([scores, np.full((50, 1), -np.inf)])
    padded_hits = np.hstack([hits, np.zeros((50, 1), dtype=bool)])
    assert fit_temperature(padded, padded_hits) == fit_temperature(scores, hits)
    assert apply_temperature(padded, 2.0)[0, 2] == -np.inf


def test_fits_predictions_to_gold_and_leaves_documents_without_gold_out():
    rng = np.random.default_rng(4)
    scores = -np.sort(-rng.random((40, 3)).astype(np.float32), axis=1)
    found = Predictions(np.tile(np.array([2, 0, 1]), (40, 1)), scores)
    gold = rng.random((40, 4)) < 0.5
    gold[:, 3] = True
    gold[:10] = False
    expected = fit_temperature(scores[10:], gold[10:][:, [2, 0, 1]])
    assert fit_temperature_to(found, sparse.csr_matrix(gold)) == expected


def test_closed_form():
    scaled = apply_temperature(np.array([[0.9, 0.5, 0.1]]), 2.0)
    np.testing.assert_allclose(scaled, [[0.75, 0.5, 0.25]], rtol=1e-6)
    assert scaled.dtype == np.float32
    assert apply_temperature(np.float32(0.9), 2.0) == pytest.approx(0.75)


def test_a_temperature_of_one_changes_nothing():
    scores = np.array([[1.0, 0.9, 0.0]], dtype=np.float32)
    assert np.array_equal(apply_temperature(scores, 1.0), scores)


probabilities = hnp.arrays(np.float32, (3, 6), elements=st.floats(0, 1, width=32))


@settings(max_examples=100, deadline=None)
@given(probabilities, st.floats(0.05, 20))
def test_order_and_ties_are_kept(scores, temperature):
    scores = -np.sort(-scores, axis=1)
    scaled = apply_temperature(scores, temperature)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert np.array_equal(np.sign(np.diff(scaled)), np.sign(np.diff(scores)))


def test_scores_that_rounding_would_join_stay_apart():
    # Cooled down, both would be exactly 1 and the label index would decide.
    sharp = Predictions(np.array([[9, 2]]), np.array([[0.99999, 0.9999]], dtype=np.float32))
    cooled = calibrate(sharp, 0.05)
    assert cooled.indices.tolist() == [[9, 2]]
    assert cooled.scores[0, 1] == np.nextafter(np.float32(1), np.float32(0))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="above 0"):
        apply_temperature(np.array([0.5]), temperature)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        fit_temperature(np.ones((2, 2)), np.ones((2, 3), dtype=bool))
