import numpy as np
import pytest

from glocal.sparse.calibration import Margins, fit_scaling


def margins(slope, shift, *, n=40_000):
    rng = np.random.default_rng(0)
    values = rng.normal(-0.5, 1, n)
    gold = rng.random(n) < 1 / (1 + np.exp(-(slope * values + shift)))
    return Margins(values, gold, np.ones(n))


def test_finds_the_scaling_that_made_the_gold():
    assert fit_scaling(margins(3.0, -1.0)) == pytest.approx((3.0, -1.0), abs=0.15)


def test_a_weight_is_as_good_as_repetition():
    few = margins(2.0, 0.0, n=500)
    twice = Margins.join([few, few])
    weighed = Margins(few.values, few.gold, 2 * few.weights)
    assert fit_scaling(weighed) == pytest.approx(fit_scaling(twice))


def test_separable_margins_give_a_finite_slope():
    slope, shift = fit_scaling(Margins(np.array([-1.0, 1.0]), np.array([False, True]), np.ones(2)))
    assert 0 < slope < 20
    assert abs(shift) < 1
