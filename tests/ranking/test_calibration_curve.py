"""The calibration curve: right over the whole range, rising, and modest where data are few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from glocal.ranking.calibration_curve import (
    CalibrationCurve,
    _bends,
    _fit,
    _hats,
    fit_curve,
    summed_pairs,
)


def curve_of(log_odds, hits, weights=None):
    """The curve of pairs whose ranks are all the same, summed up first."""
    weights = np.ones_like(log_odds) if weights is None else weights
    odds, gold, sums = summed_pairs(log_odds, hits * weights, weights)
    return fit_curve(odds, gold / sums, sums, np.ones_like(odds))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def drawn(seed, n=400_000):
    """Most pairs at low scores, a few high; scores are bent and shifted against the truth."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(-6, 1, n), rng.normal(0, 2, n // 100)])
    truth = np.where(x < -3, 1.7 * x + 1.6, 0.7 * x - 1.4)
    return x, (rng.random(len(x)) < sigmoid(truth)).astype(float)


def test_probabilities_are_right_in_every_range():
    curve = curve_of(*drawn(0))
    x, hits = drawn(1)
    p = sigmoid(curve(x))
    assert p.sum() == pytest.approx(hits.sum(), rel=0.1)
    for low, high in ((0.001, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 1)):
        inside = (p >= low) & (p < high)
        assert p[inside].mean() == pytest.approx(hits[inside].mean(), rel=0.25)


def test_weights_count_as_repeated_pairs():
    x = np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0])
    hits = np.array([0.0, 0.1, 0.2, 0.4, 0.7, 0.9])
    weights = np.array([5000, 2000, 1000, 300, 200, 200])
    curve = curve_of(x, hits, weights)
    repeated = np.repeat(x, weights)
    outcomes = np.concatenate(
        [np.arange(n) < round(h * n) for h, n in zip(hits, weights, strict=True)]
    )
    again = curve_of(repeated, outcomes.astype(float))
    np.testing.assert_allclose(curve(x), again(x), atol=0.02)


def test_dev_sums_are_met():
    x, hits = drawn(3, 50_000)
    p = sigmoid(curve_of(x, hits)(x))
    assert p.sum() == pytest.approx(hits.sum(), rel=0.03)


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=60),
)
def test_any_data_gives_a_rising_curve_or_none(pairs):
    x = np.array([value for value, _ in pairs])
    hits = np.array([float(hit) for _, hit in pairs])
    curve = curve_of(x, hits)
    if curve is None:
        assert hits.all() or not hits.any()
        return
    grid = np.linspace(-40, 40, 200)
    assert (np.diff(curve(grid)) > 0).all()
    assert np.isfinite(curve(grid)).all()


def test_a_few_pairs_move_little():
    curve = curve_of(np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0]))
    assert np.abs(curve(np.array([-1.0, 0.0, 1.0])) - [-1.0, 0.0, 1.0]).max() < 1.0


def ranked(slope, seed=0):
    """Pairs whose rank counts by a factor that depends on their log-odds."""
    rng = np.random.default_rng(seed)
    x, ranks = rng.normal(-2, 2, 200_000), rng.integers(1, 30, 200_000).astype(float)
    truth = x - slope(x) * (np.log(ranks) - 2.5)
    return x, (rng.random(len(x)) < sigmoid(truth)).astype(float), ranks


def test_ranks_matter_where_they_tell_something():
    x, hits, ranks = ranked(lambda x: 0.75)
    slopes = np.array(fit_curve(x, hits, np.ones_like(x), ranks).rank_slopes)
    np.testing.assert_allclose(slopes[1:-2], 0.75, atol=0.15)  # few pairs at both ends
    x, hits, ranks = ranked(lambda x: 0.0)
    assert max(fit_curve(x, hits, np.ones_like(x), ranks).rank_slopes) < 0.2


def test_a_rank_counts_only_at_the_scores_where_it_tells_something():
    x, hits, ranks = ranked(lambda x: 0.8 * (np.abs(x) < 1.5))
    curve = fit_curve(x, hits, np.ones_like(x), ranks)
    x, hits, ranks = ranked(lambda x: 0.8 * (np.abs(x) < 1.5), seed=1)
    p = sigmoid(curve(x, ranks))
    first, last = ranks <= 3, ranks >= 20
    for part in (first, last):
        for low, high in ((0.02, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1)):
            inside = part & (p >= low) & (p < high)
            assert p[inside].mean() == pytest.approx(hits[inside].mean(), rel=0.1)


def test_labels_are_never_raised_for_ranking_lower():
    x, hits, ranks = ranked(lambda x: -0.5)
    curve = fit_curve(x, hits, np.ones_like(x), ranks)
    assert set(curve.rank_slopes) == {0.0}
    p = sigmoid(curve(x, ranks))
    assert p.sum() == pytest.approx(hits.sum(), rel=0.01)


def test_stored_and_read_again():
    x, hits = drawn(0, 20_000)
    curve = fit_curve(x, hits, np.ones_like(x), np.arange(len(x)) % 7 + 1.0)
    assert len(curve.rank_slopes) == len(curve.usual_ranks) == len(curve.knots)
    assert CalibrationCurve.from_mapping(curve.to_mapping()) == curve


@pytest.mark.parametrize(
    ("knots", "heights"),
    [((0.0,), (0.0,)), ((0, 1), (1, 0)), ((1, 0), (0, 1)), ((0, 1), (0, np.inf)), ((0, 1), (0,))],
)
def test_what_does_not_rise_is_refused(knots, heights):
    with pytest.raises(ValueError, match="rising"):
        CalibrationCurve(tuple(map(float, knots)), tuple(map(float, heights)))


# --- one fit to the last digit ---------------------------------------------------------------

BENT_KNOTS = [-6.0, -4.05, -3.4, -3.1, -2.8, -2.5, -2.15, -1.85, -1.55, -1.2, -0.85, -0.1, 0.6, 1.3]
BENT_KNOTS += [2.0, 2.75, 3.45, 4.0]
BENT_HEIGHTS = [-8.563946218, -5.483585989, -4.437002341, -3.958455443, -3.479360716, -2.999849986]
BENT_HEIGHTS += [-2.44060765, -1.958982493, -1.486761766, -0.896596511, -0.477704576, 0.023973877]
BENT_HEIGHTS += [0.521126488, 1.009237164, 1.500321676, 2.026336606, 2.52095733, 2.934071058]


def bent():
    """Pairs on a grid that are gold exactly as often as a bent line says, rare ones at the top."""
    x = np.linspace(-6, 4, 201)
    return x, sigmoid(np.where(x < -1, 1.6 * x + 1, 0.7 * x + 0.1)), np.round(400 * np.exp(-x / 2))


def test_the_same_pairs_give_the_same_curve_as_ever():
    x, hits, weights = bent()
    curve = curve_of(x, hits, weights.clip(20))
    np.testing.assert_allclose(curve.knots, BENT_KNOTS, atol=1e-9)
    np.testing.assert_allclose(curve.heights, BENT_HEIGHTS, atol=2e-7)
    assert set(curve.rank_slopes) == set(curve.usual_ranks) == {0.0}


def test_the_same_pairs_with_ranks_give_the_same_curve_as_ever():
    x, ranks = np.repeat(bent()[0], 5), np.tile(np.arange(1.0, 6.0), 201)
    weights = np.repeat(bent()[2].clip(20), 5)
    curve = fit_curve(x, sigmoid(x - 0.5 * np.log(ranks) - 0.3), weights, ranks)
    assert len(curve.knots) == 21
    np.testing.assert_allclose(curve.knots[:3], [-6.0, -5.25, -4.75])
    np.testing.assert_allclose(curve.heights[:3], [-6.77623432, -6.02826031, -5.52784573])
    np.testing.assert_allclose(curve.heights[-2:], [3.06965445, 3.22722283])
    np.testing.assert_allclose(curve.rank_slopes[1:-4], 0.5, atol=0.01)
    np.testing.assert_allclose(curve.rank_slopes[-2:], [0.45685194, 0.37640965])
    np.testing.assert_allclose(curve.usual_ranks, np.log(120) / 5)


def test_heights_minimise_log_loss_bends_and_the_pull_to_the_identity():
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    gold, weights = np.array([1.0, 2.0, 3.0, 4.0, 4.0]), np.array([10.0, 8.0, 6.0, 5.0, 4.5])
    knots = np.array([-2.0, -0.5, 0.5, 2.0])
    basis = _hats(x, knots)
    np.testing.assert_allclose(basis @ knots, x)  # linear functions are met exactly
    assert basis[2].tolist() == [0, 0.5, 0.5, 0]
    bends = np.array([[2 / 3, -5 / 3, 1, 0], [0, 1, -5 / 3, 2 / 3]])

    def objective(heights):
        z = basis @ heights
        loss = weights @ np.logaddexp(0, z) - gold @ z
        return loss + ((bends @ heights) ** 2).sum() + 0.25 * ((heights - knots) ** 2).sum()

    best = minimize(objective, knots, tol=1e-12).x
    found = _fit(knots, basis, gold, weights, np.zeros(5)).heights
    np.testing.assert_allclose(found, best, atol=1e-5)


def test_bends_are_differences_of_slopes_by_the_narrower_side():
    expected = [[1.0, -1.5, 0.5, 0.0], [0.0, 0.5, -1.5, 1.0]]
    np.testing.assert_allclose(_bends(np.array([0.0, 1.0, 3.0, 4.0])), expected)
    assert _bends(np.array([0.0, 1.0])).shape == (0, 2)


def test_probabilities_sum_to_the_gold_labels_of_the_pairs():
    x, hits, weights = bent()
    weights = weights.clip(20)
    p = sigmoid(curve_of(x, hits, weights)(x))
    # Pairs are summed in bins of log-odds, so not to the last digit.
    assert weights @ p == pytest.approx(weights @ hits, rel=1e-6)
    few = weights / 400  # below 50 gold labels nothing is corrected
    p = sigmoid(curve_of(x, hits, few)(x))
    assert few @ hits < 50
    assert abs(few @ p - few @ hits) > 1e-3


def test_heights_always_rise():
    x = np.repeat([-3.0, -1.0, 1.0, 3.0], 100)
    hits = np.repeat([0.9, 0.5, 0.2, 0.05], 100)  # the higher the score, the rarer the gold label
    curve = curve_of(x, hits)
    assert (np.diff(curve.heights) >= 0.02 * np.diff(curve.knots) - 1e-12).all()
    assert curve(np.array([3.0]))[0] - curve(np.array([-3.0]))[0] == pytest.approx(0.12, abs=1e-6)


def test_pairs_of_one_bin_are_summed():
    x = np.array([0.001, 0.003, 0.012, -0.5])
    odds, gold, weights = summed_pairs(x, np.array([1.0, 0.0, 2.0, 0.5]), np.array([1.0, 3, 2, 1]))
    np.testing.assert_allclose(odds, [-0.5, 0.0025, 0.012])
    assert gold.tolist() == [0.5, 1.0, 2.0]
    assert weights.tolist() == [1, 4, 2]


def test_beyond_its_knots_a_curve_goes_on_straight_and_the_rank_counts_as_at_the_last():
    knots, heights = (0.0, 1.0, 3.0), (0.0, 2.0, 3.0)
    curve = CalibrationCurve(knots, heights, (0.0, 1.0, 0.5), (2.0, 1.0, 0.0))
    at = np.array([-1.0, 0.5, 1.0, 2.0, 5.0])
    np.testing.assert_allclose(
        curve(at, np.e), np.array([-2, 1, 2, 2.5, 4]) - [0, -0.25, 0, 0.375, 0.5]
    )


def test_curves_of_earlier_versions_are_read():
    stored = {"knots": [0.0, 1.0, 3.0], "heights": [0.0, 2.0, 3.0], "rank_slope": 0.5}
    curve = CalibrationCurve.from_mapping(stored)
    np.testing.assert_allclose(curve(np.array([-1.0, 0.5, 1.0, 2.0, 5.0])), [-2, 1, 2, 2.5, 4])
    assert curve(np.array([1.0]), np.e)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("slope", [-0.5, np.nan])
def test_ranks_never_raise_a_score(slope):
    with pytest.raises(ValueError, match="rising"):
        CalibrationCurve((0.0, 1.0), (0.0, 1.0), rank_slope=slope)
    with pytest.raises(ValueError, match="slope"):
        CalibrationCurve((0.0, 1.0), (0.0, 1.0), (0.0, slope), (0.0, 0.0))


def test_every_knot_needs_a_rank_and_its_slope():
    for slopes, usual in (((0.0,), (0.0,)), ((0.0, 0.0), ()), ((0.0, 0.0), (0.0, np.inf))):
        with pytest.raises(ValueError, match="slope"):
            CalibrationCurve((0.0, 1.0), (0.0, 1.0), slopes, usual)


def test_knots_must_rise():
    with pytest.raises(ValueError, match="rising knots"):
        CalibrationCurve((0.0, 0.0, 1.0), (-1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="rising knots"):
        CalibrationCurve((0.0, 0.5, 1.0), (-1.0, -1.0, 1.0))
