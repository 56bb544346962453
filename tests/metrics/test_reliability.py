"""Expected calibration error."""

import numpy as np
import pytest

from glocal.metrics.reliability import expected_calibration_error, score_ranges


def test_closed_form():
    # Bin [0, 0.5): mean 0.2, accuracy 1/2, two scores; bin [0.5, 1]: mean 0.75, accuracy 1, two.
    error = expected_calibration_error(
        np.array([0.1, 0.3, 0.5, 1.0]), np.array([True, False, True, True]), bins=2
    )
    assert error.value == pytest.approx((2 * 0.3 + 2 * 0.25) / 4)
    assert (error.bins, error.n) == (2, 4)
    assert error.counts.tolist() == [2, 2]
    np.testing.assert_allclose(error.accuracy, [0.5, 1.0])
    np.testing.assert_allclose(error.confidence, [0.2, 0.75])


def test_calibrated_scores_have_almost_no_error():
    rng = np.random.default_rng(0)
    scores = rng.random(200_000)
    hits = rng.random(200_000) < scores
    assert expected_calibration_error(scores, hits).value < 0.01
    assert expected_calibration_error(scores**3, hits).value > 0.1


def test_a_score_in_single_precision_stays_below_the_edge_it_is_rounded_from():
    below = np.float32([0.7])  # 0.69999999, of which single precision makes 7 when it has ten bins
    error = expected_calibration_error(below, np.array([True]), bins=10)
    assert error.counts.tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_means_are_taken_in_double_precision():
    scores = np.random.default_rng(0).uniform(0.01, 0.1, 5000).astype(np.float32)
    found = score_ranges(scores, scores > 0.05)[1]
    assert found.mean == pytest.approx(scores.astype(np.float64).mean(), rel=1e-13)


def test_certain_and_right_is_perfect():
    error = expected_calibration_error(np.array([1.0, 0.0]), np.array([True, False]))
    assert error.value == 0


def test_without_scores_there_is_no_error():
    assert np.isnan(expected_calibration_error(np.empty(0), np.empty(0, dtype=bool)).value)


@pytest.mark.parametrize("score", [-0.1, 1.1, np.nan, -np.inf])
def test_what_is_not_a_probability_is_refused(score):
    with pytest.raises(ValueError, match="probabilities"):
        expected_calibration_error(np.array([score]), np.array([True]))


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        expected_calibration_error(np.ones(2), np.ones(3, dtype=bool))


def test_ranges_compare_means_with_outcomes():
    scores = np.array([[0.0005, 0.005, 0.05, 0.3], [0.2, 0.4, 0.75, 1.0]])
    hits = np.array([[True, False, True, False], [True, False, True, True]])
    low, small, middle, high = score_ranges(scores, hits)
    assert (low.n, low.mean, low.observed) == (1, 0.005, 0.0)
    assert (small.n, small.mean, small.observed) == (1, 0.05, 1.0)
    assert middle.n == 3
    assert middle.mean == pytest.approx(0.3)
    assert middle.observed == pytest.approx(1 / 3)
    assert (high.n, high.mean, high.observed) == (2, 0.875, 1.0)
    empty = score_ranges(np.array([0.9]), np.array([True]))[0]
    assert empty.n == 0
    assert np.isnan(empty.mean)


def test_the_upper_end_of_a_range_belongs_to_the_next():
    edges = np.array([0.001, 0.01, 0.1, 0.5, 1.0])
    found = score_ranges(edges, np.ones(5, dtype=bool))
    assert [(r.low, r.high) for r in found] == [(0.001, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 1)]
    assert [r.n for r in found] == [1, 1, 1, 2]
    assert [r.mean for r in found] == [0.001, 0.01, 0.1, 0.75]
    empty = score_ranges(np.array([0.0009]), np.array([True]))
    assert [r.n for r in empty] == [0, 0, 0, 0]
    assert np.isnan([r.observed for r in empty]).all()


def test_fifteen_bins_by_default_each_with_its_lower_edge():
    scores = np.array([[0.0, 1 / 15 + 1e-12], [0.99, 1.0]])
    found = expected_calibration_error(scores, np.array([[False, True], [True, True]]))
    assert found.bins == 15
    assert found.counts.tolist() == [1, 1, *[0] * 12, 2]
    np.testing.assert_allclose(found.confidence[[0, 1, -1]], [0, 1 / 15, 0.995])
    assert found.accuracy[[0, 1, -1]].tolist() == [0, 1, 1]
    assert found.value == pytest.approx((14 / 15 + 2 * 0.005) / 4)
