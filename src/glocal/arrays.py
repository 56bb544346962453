"""Names of the array types that signatures use most, numbers of ranges, and arrays that grow."""

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


class GrowingArray:
    """An array to which values are appended.

    It is enlarged where it lies, so that it takes hardly more memory than its values; joining a
    list of arrays takes twice as much.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def add(self, values: NDArray[Any]) -> None:
        """Append values."""
        end = self._size + len(values)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) * 9 // 8), refcheck=False)
        self._array[self._size : end] = values
        self._size = end

    def whole(self) -> NDArray[Any]:
        """Return all values; nothing may be appended afterwards."""
        self._array.resize(self._size, refcheck=False)
        return self._array
