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
    _minimise,
    _shift,
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


def test_the_last_piece_has_enough_gold_labels_too():
    """A tenth of the lower pairs is gold and all of the few upper ones."""
    x = np.concatenate([np.full(1000, -2.0), np.linspace(0.0, 2.0, 10)])
    hits = np.concatenate([np.full(1000, 0.1), np.ones(10)])
    assert curve_of(x, hits).knots == pytest.approx((-2.0, 2.0), abs=0.01)
    many = np.concatenate([x, np.linspace(0.0, 2.0, 90)]), np.concatenate([hits, np.ones(90)])
    assert len(curve_of(*many).knots) == 3


def test_steps_that_go_too_far_are_shortened():
    """From far away the curvature is almost nothing and the first step far too long."""
    columns, usual = np.array([[1.0, 0.5], [1.0, -1.0], [0.0, 2.0]]), np.array([0.5, -0.5])
    gold, weights = np.array([30.0, 60.0, 5.0]), np.array([100.0, 80.0, 50.0])

    def objective(found):
        z, away = columns @ found, found - usual
        return weights @ np.logaddexp(0, z) - gold @ z + 1e-6 * away @ away

    best = minimize(objective, usual, tol=1e-12).x
    for start in (usual, np.array([9.0, 9.0]), np.array([-12.0, 5.0])):
        found = _minimise(
            columns, gold, weights, penalty=1e-6 * np.eye(2), usual=usual, start=start
        )
        np.testing.assert_allclose(found, best, atol=1e-4)


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


def knots_of(gold, weights):
    """Where knots are placed for log-odds 0, 1, 2 …"""
    x = np.arange(float(len(gold)))
    gold, weights = np.array(gold, float), np.array(weights, float)
    curve = fit_curve(x, gold / weights, weights, np.ones_like(x))
    return list(curve.knots)


@pytest.mark.parametrize(
    ("gold", "weights", "knots"),
    [
        # Twenty gold labels between knots, and after the last.
        ([20, 60, 300, 600], [4000, 2000, 1000, 1000], [0, 1, 2, 3, 4]),
        ([19, 60, 300, 600], [4000, 2000, 1000, 1000], [0, 2, 3, 4]),
        ([30, 60, 300, 20], [4000, 2000, 1000, 22], [0, 1, 2, 3, 4]),
        ([30, 60, 300, 19], [4000, 2000, 1000, 21], [0, 1, 2, 3]),
        # A step is half a unit of observed log-odds: these rates are in one step.
        ([300, 310, 600], [1000, 1000, 1000], [0, 2, 3]),
        # Of many gold labels, a hundred and twentieth between knots.
        ([39, 1, 960, 3800], [90_000, 600, 90_000, 90_000], [0, 2, 3, 4]),
        ([40, 0, 960, 3800], [90_000, 600, 90_000, 90_000], [0, 2, 3, 4]),
        # Certain ones have a step of their own.
        ([0, 50, 50], [900, 100, 50], [0, 2, 3]),
        ([30], [90], [0, 1]),
    ],
)
def test_knots_are_placed_where_the_rate_of_gold_labels_rises(gold, weights, knots):
    assert knots_of(gold, weights) == knots


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_heights_and_rank_effects_minimise_one_objective(scale):
    x = np.repeat([-2.0, -1.0, 0.0, 1.0, 2.0], 2)
    ranks, weights = np.tile([1.0, 6.0], 5), scale * np.tile([300.0, 500.0], 5)
    gold = weights * sigmoid(0.8 * x - 0.6 * np.log(ranks) - 0.2)
    knots = np.array([-2.0, -0.5, 0.5, 2.0])
    basis, log_ranks = _hats(x, knots), np.log(ranks)
    usual = basis.T @ (weights * log_ranks) / (basis.T @ weights)
    bends = _bends(knots)
    even = np.array([[1.0, -2.0, 1.0, 0.0], [0.0, 1.0, -2.0, 1.0]])

    def objective(found):
        heights, slopes = found[:4], found[4:]
        z = basis @ heights + (basis @ slopes) * 0
        z = z + basis @ (slopes * 0) + ((basis @ usual - log_ranks)[:, None] * basis) @ slopes
        loss = weights @ np.logaddexp(0, z) - gold @ z
        loss += ((bends @ heights) ** 2).sum() + 0.25 * ((heights - knots) ** 2).sum()
        return loss + ((even @ slopes) ** 2).sum() + (slopes**2).sum()

    best = minimize(objective, np.concatenate([knots, np.zeros(4)]), tol=1e-13).x
    curve = _fit(knots, basis, gold, weights, log_ranks)
    np.testing.assert_allclose(curve.usual_ranks, usual)
    np.testing.assert_allclose(curve.rank_slopes, best[4:], atol=1e-5)
    moved = np.array(curve.heights) - best[:4]  # by one shift, to the sum of the gold labels
    np.testing.assert_allclose(moved, moved[0], atol=1e-5)
    assert min(best[4:]) > 0.01


def test_heights_that_fall_are_joined_by_how_firm_they_are():
    knots = np.array([0.0, 1.0, 2.0, 3.0])
    weights, gold = np.array([50.0, 90.0, 30.0, 4.0]), np.array([4.0, 60.0, 6.0, 3.0])
    basis = np.eye(4)
    bends = _bends(knots)

    def objective(heights):
        loss = weights @ np.logaddexp(0, heights) - gold @ heights
        return loss + ((bends @ heights) ** 2).sum() + 0.25 * ((heights - knots) ** 2).sum()

    free = minimize(objective, knots, tol=1e-13).x
    least = 0.02 * knots
    assert free[1] > free[2]
    p = sigmoid(free)
    firmness = weights * p * (1 - p)
    joined = free - least
    joined[1:3] = np.average(joined[1:3], weights=firmness[1:3])
    heights = np.array(_fit(knots, basis, gold, weights, np.zeros(4)).heights)
    moved = heights - joined - least  # by one shift, to the sum of the gold labels
    np.testing.assert_allclose(moved, moved[0], atol=1e-5)


@pytest.mark.parametrize(
    ("share", "shift"), [(0.6, np.log(1.5)), (0.4, -np.log(1.5)), (0.7, 0.0), (0.3, 0.0)]
)
def test_one_shift_of_at_most_half_a_unit_corrects_the_sum(share, shift):
    weights = np.array([60.0, 40.0])
    found = _shift(np.zeros(2), 100 * share, weights)
    assert found == pytest.approx(shift if abs(shift) < 0.5 and 100 * share >= 50 else 0.0)
    assert _shift(np.zeros(2), 1000 * share, 10 * weights) == pytest.approx(shift)


def test_fifty_gold_labels_are_enough_for_a_shift():
    assert _shift(np.array([0.2]), 50.0, np.array([100.0])) == pytest.approx(-0.2)
    assert _shift(np.array([0.2]), 49.9, np.array([100.0])) == 0.0


def test_pairs_beyond_the_mean_of_the_last_bin_follow_the_last_piece():
    knots = np.array([-1.0, 0.0, 2.0])
    x = np.array([-1.003, -0.5, 1.0, 2.004])
    np.testing.assert_allclose(_hats(x, knots) @ knots, x)
