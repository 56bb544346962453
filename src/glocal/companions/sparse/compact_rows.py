"""Sparse weights of 16 bits.

A weight is a whole number of 16 bits times a power of two, which all weights of a label share. With
up to 65,536 labels, the number and its label are the two halves of 32 bits; with more, labels take
four bytes and numbers two. Powers of two do not round, so scores are those of the same weights in
float32 to the last bit: `rounded` is all that changes a trained model, and it changes it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import Entries, StoredRows

LABELS_OF_HALF = 1 << 16  # labels that fit into half of an entry
_LARGEST = 32_767
_PART = 1 << 20  # weights that are rounded together


@dataclass(frozen=True, eq=False)
class CompactRows(StoredRows):
    """A CSR matrix (features, labels) of rounded weights.

    Attributes:
        entries: int32, row by row: the label of each weight, with its number above if there is
            room.
        numbers: int16, the number of each weight; None where they are part of the entries.
        indptr: Where each row starts, and the end of the last.
        scales: (L,) float32, the power of two of each label.
        shape: Rows and columns.
    """

    entries: NDArray[np.int32]
    numbers: NDArray[np.int16] | None
    indptr: NDArray[np.integer[Any]]
    scales: NDArray[np.float32]
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any) -> CompactRows | None:
        """Return a float32 CSR matrix in this form; None if its weights are not rounded."""
        if isinstance(matrix, CompactRows):
            return matrix
        scales = _scales(matrix)
        numbers = matrix.data / scales[matrix.indices]
        whole = numbers.astype(np.int16)
        if not np.array_equal(whole, numbers):
            return None
        labels = matrix.indices.astype(np.int32)
        if matrix.shape[1] > LABELS_OF_HALF:
            return cls(labels, whole, matrix.indptr, scales, matrix.shape)
        entries = whole.astype(np.int32) << 16 | labels
        return cls(entries, None, matrix.indptr, scales, matrix.shape)

    @property
    def labels(self) -> NDArray[np.int32]:
        """The label of each weight."""
        return self.entries if self.numbers is not None else self.entries & (LABELS_OF_HALF - 1)

    def at(self, places: Any) -> Entries:
        """Return the entries at some places; their values are to be scaled."""
        numbers = None if self.numbers is None else self.numbers[places]
        return _split(self.entries[places], numbers)

    def reader(self, copy_rows: Callable[..., None]) -> Callable[[Any, int], Entries]:
        """Return a function that returns the entries of rows, given how many they are."""

        def read(rows: Any, size: int) -> Entries:
            entries = np.empty(size, np.int32)
            numbers = None if self.numbers is None else np.empty(size, np.int16)
            stored, found = (self.entries, entries) if numbers is None else (self.numbers, numbers)
            copy_rows(len(rows), rows, self.indptr, self.entries, stored, entries, found)
            return _split(entries, numbers)

        return read

    def scaled(self, sums: NDArray[np.float32], columns: Any = ...) -> NDArray[np.float32]:
        """Scale sums of values in place and return them."""
        sums *= self.scales[columns]
        return sums


def rounded(matrix: Any, *, in_place: bool = False) -> Any:
    """Return a float32 CSR matrix with weights of 16 bits; doing so again changes nothing.

    Labels and bounds are not copied, and with `in_place` neither are the weights.
    """
    from scipy.sparse import csr_matrix

    scales, data = _scales(matrix), matrix.data if in_place else np.empty_like(matrix.data)
    for part in _parts(matrix):
        own = scales[matrix.indices[part]]
        np.rint(matrix.data[part] / own, out=data[part])
        data[part] *= own
    return csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape, copy=False)


def _split(entries: NDArray[np.int32], numbers: NDArray[np.int16] | None) -> Entries:
    if numbers is not None:
        return entries, numbers.astype(np.float32)
    return entries & (LABELS_OF_HALF - 1), (entries >> 16).astype(np.float32)


def _scales(matrix: Any) -> NDArray[np.float32]:
    """Return the smallest power of two for each label with which its weights fit into 16 bits."""
    largest = np.zeros(matrix.shape[1], np.float32)
    for part in _parts(matrix):
        np.maximum.at(largest, matrix.indices[part], np.abs(matrix.data[part]))
    share, power = np.frexp(largest.astype(np.float64) / _LARGEST)
    power -= share == 0.5  # a power of two itself
    return np.ldexp(np.float32(1), np.where(largest > 0, power, 0)).astype(np.float32)


def _parts(matrix: Any) -> Iterator[slice]:
    """Yield slices of the weights, so that copies of a part are all that is held."""
    size = len(matrix.data)
    return (slice(start, min(start + _PART, size)) for start in range(0, size, _PART))
