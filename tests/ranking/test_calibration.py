"""Calibration of whole predictions."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from scipy import sparse

from glocal.metrics.reliability import expected_calibration_error
from glocal.ranking.calibration import Calibration, CalibrationPairs, calibrate
from glocal.ranking.calibration_curve import CalibrationCurve
from glocal.ranking.predictions import Predictions


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def temperature(value):
    return Calibration(1 / value, 1 / value)


def fitted(scores, hits):
    pairs = CalibrationPairs()
    indices = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    indices = np.where(np.isfinite(scores), indices, -1)
    gold = np.hstack([hits, np.ones((len(hits), 1), dtype=bool)])  # no document without gold
    pairs.add(Predictions.from_unsorted(indices, scores), sparse.csr_matrix(gold))
    return pairs.fit()


def test_lowers_the_calibration_error_of_scores_wrong_at_one_end():
    rng = np.random.default_rng(2)
    scores = rng.random((5000, 5))
    hits = rng.random(scores.shape) < scores * (1 - 0.3 * scores**2)
    scaled = fitted(scores, hits)(scores)
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
def test_without_both_outcomes_nothing_changes(scores, hits):
    assert fitted(scores, hits) == Calibration()


def test_scores_of_zero_and_one_are_met():
    scores = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 0.5]])
    right = np.array([[True, False, True], [True, False, False]])
    for hits in (right, ~right):
        scaled = fitted(scores, hits)(scores)
        assert np.isfinite(scaled).all()
        assert ((scaled >= 0) & (scaled <= 1)).all()


def test_empty_slots_take_no_part():
    rng = np.random.default_rng(3)
    scores, hits = rng.random((50, 2)), rng.random((50, 2)) < 0.5
    padded = np.hstack([scores, np.full((50, 1), -np.inf)])
    padded_hits = np.hstack([hits, np.zeros((50, 1), dtype=bool)])
    assert fitted(padded, padded_hits) == fitted(scores, hits)
    assert temperature(2.0)(padded)[0, 2] == -np.inf


def test_a_weighted_sample_stands_for_all_documents():
    rng = np.random.default_rng(5)
    scores = -np.sort(-rng.random((4000, 6)).astype(np.float32), axis=1)
    hits = rng.random(scores.shape) < scores**2
    gold = sparse.csr_matrix(np.hstack([hits, np.ones((4000, 1))]))
    found = Predictions(np.tile(np.arange(6), (4000, 1)), scores)
    whole, sampled = CalibrationPairs(), CalibrationPairs()
    whole.add(found, gold)
    sampled.add(found.head(2), gold)
    half = np.arange(0, 4000, 2)
    sampled.add(found.take(half), gold[half], skip=2, weight=2.0)
    odds = np.linspace(-3, 3, 20)
    np.testing.assert_allclose(sampled.fit().curve(odds), whole.fit().curve(odds), atol=0.25)


def test_documents_without_gold_are_skipped():
    rng = np.random.default_rng(4)
    scores = -np.sort(-rng.random((40, 3)).astype(np.float32), axis=1)
    found = Predictions(np.tile(np.array([2, 0, 1]), (40, 1)), scores)
    gold = rng.random((40, 4)) < 0.5
    gold[:, 3] = True
    gold[:10] = False
    every, some = CalibrationPairs(), CalibrationPairs()
    every.add(found, sparse.csr_matrix(gold))
    some.add(found.take(np.arange(10, 40)), sparse.csr_matrix(gold[10:]))
    assert every.fit() == some.fit()


def test_a_curve_is_stored_and_read_again():
    rng = np.random.default_rng(0)
    scores = rng.random((200, 3))
    found = fitted(scores, rng.random(scores.shape) < scores)
    assert found.curve is not None
    assert Calibration.from_mapping(found.to_mapping()) == found
    assert Calibration.from_mapping(temperature(2.0).to_mapping()) == temperature(2.0)


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


def test_scores_of_zero_and_one_have_finite_log_odds():
    # 1 counts as 1 − 2⁻²⁵ and 0 as 10⁻³⁰; halving their log-odds takes square roots of the odds.
    sure, never = temperature(2.0)(np.array([[1.0, 0.0]]))[0]
    assert 1 - sure == pytest.approx(2**-12.5, rel=1e-3)
    assert never == pytest.approx(1e-15, rel=1e-5)
    assert temperature(0.5)(np.array([[1e-20]]))[0, 0] == pytest.approx(1e-30)  # not below


def test_a_curve_lowers_later_ranks():
    curve = CalibrationCurve((0.0, 1.0), (0.0, 1.0), rank_slope=1.0)
    scores = np.array([[0.5, 0.5, 0.5], [0.8, 0.4, -np.inf]], dtype=np.float32)
    found = Calibration(curve=curve)(scores)
    assert found[1, 2] == -np.inf
    # Equal scores stay equal, so they get the lowest of their ranks or what stands before them.
    assert found[0].tolist() == sorted(found[0].tolist(), reverse=True)
    assert found[1, 0] == pytest.approx(0.8)
    assert found[1, 1] == pytest.approx((0.4 / 0.6 / 2) / (1 + 0.4 / 0.6 / 2))


def test_pairs_are_kept_by_bands_of_ranks():
    pairs = CalibrationPairs()
    scores = np.array([[0.9, 0.5, 0.2, 0.1]], dtype=np.float32)
    found = Predictions(np.array([[0, 1, 2, 3]]), scores)
    pairs.add(found, sparse.csr_matrix([[1, 0, 1, 0, 0]]))
    odds, gold, weights, ranks = np.concatenate(pairs.parts, axis=1)
    np.testing.assert_allclose(odds, np.log(scores[0] / (1 - scores[0])), rtol=1e-5)
    assert gold.tolist() == [1, 0, 1, 0]
    assert weights.tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(ranks, np.exp([0, 6 / 8, 9 / 8, 11 / 8]))
    later = CalibrationPairs()
    later.add(found, sparse.csr_matrix([[1, 0, 1, 0, 0]]), skip=2, weight=3.0)
    odds, gold, weights, ranks = np.concatenate(later.parts, axis=1)
    np.testing.assert_allclose(odds, np.log(scores[0, 2:] / (1 - scores[0, 2:])), rtol=1e-5)
    assert gold.tolist() == [3, 0]
    assert weights.tolist() == [3, 3]
    np.testing.assert_allclose(ranks, np.exp([9 / 8, 11 / 8]))


CURVE = CalibrationCurve((-8.0, -2.0, 0.0, 4.0), (-7.0, -2.5, 0.5, 3.0), (0.1, 0.9, 0.2, 0.7),
                         (3.0, 1.5, 0.5, 0.1))  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    odds=hnp.arrays(np.float64, (4, 12), elements=st.floats(-9, 5)),
    added=hnp.arrays(np.bool_, (4, 12)),
    empty=st.integers(0, 3),
)
def test_labels_added_later_change_no_other_probability(odds, added, empty):
    scores = -np.sort(-sigmoid(odds).astype(np.float32), axis=1)
    scores[:, scores.shape[1] - empty :] = -np.inf
    together = Calibration(curve=CURVE)(scores, added=added)
    for row, others in enumerate(~added):
        alone = Calibration(curve=CURVE)(scores[row : row + 1, others])
        np.testing.assert_array_equal(together[row, others], alone[0])
    filled = together[:, : scores.shape[1] - empty]
    assert (np.diff(filled, axis=1) <= 0).all()
    assert np.isneginf(together[:, scores.shape[1] - empty :]).all()


def test_labels_added_later_take_nothing_from_empty_places():
    curve = CalibrationCurve((-8.0, 0.0, 4.0), (-7.0, 0.5, 3.0))
    scores = np.array([[0.9, 0.05, -np.inf]], np.float32)
    added = np.array([[False, True, False]])
    found = Calibration(curve=curve)(scores, added=added)
    alone = Calibration(curve=curve)(scores[:, 1:2])
    assert found[0, 1] == alone[0, 0]
    assert np.isneginf(found[0, 2])


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 3, 4)])
def test_labels_added_later_stay_between_scores_that_were_kept_apart(shape):
    # Cooled down, all three are 1; the second is lowered by one step, and the third not above it.
    scores = np.broadcast_to(np.array([0.99999, 0.9999, 0.999, 0.5], np.float32), shape)
    added = np.broadcast_to([False, False, True, False], shape)
    found = temperature(0.05)(scores, added=added)
    below = np.nextafter(np.float32(1), np.float32(0))
    assert found.shape == shape
    np.testing.assert_array_equal(
        found[..., :3], np.broadcast_to([1, below, below], (*shape[:-1], 3))
    )
    np.testing.assert_allclose(found[..., 3], 0.5)
