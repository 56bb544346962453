"""The calibration curve: right over the whole range, rising, and modest where data are few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.ranking.calibration_curve import CalibrationCurve, fit_curve


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def drawn(seed, n=400_000):
    """Most pairs at low scores, a few high; scores are bent and shifted against the truth."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(-6, 1, n), rng.normal(0, 2, n // 100)])
    truth = np.where(x < -3, 1.7 * x + 1.6, 0.7 * x - 1.4)
    return x, (rng.random(len(x)) < sigmoid(truth)).astype(float)


def test_probabilities_are_right_in_every_range():
    curve = fit_curve(*drawn(0))
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
    curve = fit_curve(x, hits, weights)
    repeated = np.repeat(x, weights)
    outcomes = np.concatenate(
        [np.arange(n) < round(h * n) for h, n in zip(hits, weights, strict=True)]
    )
    again = fit_curve(repeated, outcomes.astype(float))
    np.testing.assert_allclose(curve(x), again(x), atol=0.02)


def test_dev_sums_are_met():
    x, hits = drawn(3, 50_000)
    p = sigmoid(fit_curve(x, hits)(x))
    assert p.sum() == pytest.approx(hits.sum(), rel=0.03)


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=60),
)
def test_any_data_gives_a_rising_curve_or_none(pairs):
    x = np.array([value for value, _ in pairs])
    hits = np.array([float(hit) for _, hit in pairs])
    curve = fit_curve(x, hits)
    if curve is None:
        assert hits.all() or not hits.any()
        return
    grid = np.linspace(-40, 40, 200)
    assert (np.diff(curve(grid)) > 0).all()
    assert np.isfinite(curve(grid)).all()


def test_a_few_pairs_move_little():
    curve = fit_curve(np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0]))
    assert np.abs(curve(np.array([-1.0, 0.0, 1.0])) - [-1.0, 0.0, 1.0]).max() < 1.0


def test_ranks_matter_where_they_tell_something():
    rng = np.random.default_rng(0)
    x, ranks = rng.normal(-2, 2, 200_000), rng.integers(1, 30, 200_000).astype(float)
    hits = (rng.random(len(x)) < sigmoid(x - 0.75 * np.log(ranks))).astype(float)
    assert fit_curve(x, hits, ranks=ranks).rank_slope == 0.75
    without = (rng.random(len(x)) < sigmoid(x)).astype(float)
    assert fit_curve(x, without, ranks=ranks).rank_slope == 0.0


def test_stored_and_read_again():
    curve = fit_curve(*drawn(0, 20_000))
    assert CalibrationCurve.from_mapping(curve.to_mapping()) == curve


@pytest.mark.parametrize(
    ("knots", "heights"),
    [((0.0,), (0.0,)), ((0, 1), (1, 0)), ((1, 0), (0, 1)), ((0, 1), (0, np.inf)), ((0, 1), (0,))],
)
def test_what_does_not_rise_is_refused(knots, heights):
    with pytest.raises(ValueError, match="rising"):
        CalibrationCurve(tuple(map(float, knots)), tuple(map(float, heights)))
