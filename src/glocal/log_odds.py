"""Log-odds and probabilities, in numpy: one place for their clipping and rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats


def log_odds(
    probabilities: NDArray[np.floating], clip: tuple[float, float] | None = None
) -> Floats:
    """Return ln p − ln(1 − p) in double precision.

    Args:
        probabilities: Values between 0 and 1.
        clip: The lowest and highest probability; beyond them the log-odds stay the same. Without
            it, 0 and 1 have infinite log-odds.
    """
    rise, fall = log_terms(probabilities, clip)
    return rise + fall


def log_terms(
    probabilities: NDArray[np.floating], clip: tuple[float, float] | None = None
) -> tuple[Floats, Floats]:
    """Return the two terms of the log-odds, ln p and −ln(1 − p)."""
    p = np.asarray(probabilities, dtype=np.float64)
    if clip is not None:
        p = np.clip(p, *clip)
    return np.log(p), -np.log1p(-p)


def sigmoid(logits: NDArray[Any]) -> NDArray[Any]:
    """Return 1 / (1 + exp(−z)) in the precision of z; never overflows, exact for small values."""
    small = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1.0, small) / (1 + small))
