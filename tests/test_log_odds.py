"""Log-odds and sigmoids at the ends of their range."""

import numpy as np
import pytest

from glocal.log_odds import log_odds, log_terms, sigmoid


def test_they_undo_each_other():
    p = np.array([1e-12, 0.1, 0.5, 0.9, 1 - 1e-12])
    np.testing.assert_allclose(sigmoid(log_odds(p)), p, rtol=1e-12)
    assert log_odds(np.array([0.5])).tolist() == [0.0]


def test_the_clip_bounds_them():
    found = log_odds(np.array([0.0, 1.0], dtype=np.float32), (1e-3, 1 - 1e-3))
    np.testing.assert_allclose(found, [-np.log(999), np.log(999)])


def test_the_terms_add_up():
    rise, fall = log_terms(np.array([0.2]))
    assert rise == pytest.approx(np.log(0.2))
    assert fall == pytest.approx(-np.log(0.8))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sigmoid_keeps_its_precision_and_never_overflows(dtype):
    found = sigmoid(np.array([-np.inf, -1000.0, -30.0, 0.0, 1000.0, np.inf], dtype=dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [0, 0, np.exp(-30.0), 0.5, 1, 1], rtol=1e-6)
