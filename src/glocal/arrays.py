"""Names of the array types that signatures use most, and the numbers of ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def ranges(starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> Ints:
    """Return the numbers of several ranges, one range after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
