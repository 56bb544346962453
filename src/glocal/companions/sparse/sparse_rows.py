"""Sparse matrices by rows, without scipy.

Importing `scipy.sparse` takes longer than tagging a text. So prediction of a few texts does without
it: stored weights and the features of texts are `StoredRows`, and `as_csr` turns them into scipy's
type where more is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import ranges

_ROWS_AT_A_TIME = 65_536
_ROWS_COMBINED = 2048

Entries = tuple[NDArray[np.int32], NDArray[np.float32]]  # columns and values


class StoredRows(ABC):
    """A CSR matrix of float32 values in some form.

    Attributes:
        indptr: Where each row starts, and the end of the last.
        shape: Rows and columns.
    """

    indptr: NDArray[np.integer[Any]]
    shape: tuple[int, int]

    @abstractmethod
    def at(self, places: Any) -> Entries:
        """Return the entries at some places; their values are to be scaled."""

    @abstractmethod
    def reader(self, copy_rows: Callable[..., None]) -> Callable[[Any, int], Entries]:
        """Return a function that returns the entries of rows, given how many they are.

        Args:
            copy_rows: scipy's compiled function that copies rows of a CSR matrix together.
        """

    @abstractmethod
    def scaled(self, sums: NDArray[np.float32], columns: Any = ...) -> NDArray[np.float32]:
        """Scale sums of values in place and return them.

        Args:
            sums: (n, columns), or one value for each of `columns`.
            columns: The columns; all by default.
        """

    def as_rows(self) -> SparseRows:
        """Return the same matrix as plain arrays."""
        columns, values = self.at(slice(None))
        return SparseRows(self.scaled(values, columns), columns, self.indptr, self.shape)

    def take(self, rows: NDArray[np.integer[Any]]) -> SparseRows:
        """Return some rows as plain arrays."""
        places, lengths = row_places(self.indptr, rows)
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(self.indptr.dtype)
        columns, values = self.at(places)
        shape = (len(rows), self.shape[1])
        return SparseRows(self.scaled(values, columns), columns, bounds, shape)


@dataclass(frozen=True, eq=False)
class SparseRows(StoredRows):
    """The arrays of a CSR matrix.

    Attributes:
        data: Values other than zero, row by row.
        indices: Column of each value.
        indptr: Where each row starts, and the end of the last.
        shape: Rows and columns.
    """

    data: NDArray[np.float32]
    indices: NDArray[np.int32]
    indptr: NDArray[np.integer[Any]]
    shape: tuple[int, int]

    def as_rows(self) -> SparseRows:
        """Return this matrix itself: arrays that are not views can be enlarged where they are."""
        return self

    def __getitem__(self, rows: slice) -> SparseRows:
        """Return neighbouring rows."""
        start, stop, _ = rows.indices(self.shape[0])
        bounds = self.indptr[start : max(start, stop) + 1]
        values = slice(bounds[0], bounds[-1])
        shape = (len(bounds) - 1, self.shape[1])
        return SparseRows(self.data[values], self.indices[values], bounds - bounds[0], shape)

    def at(self, places: Any) -> Entries:
        """Return the entries at some places."""
        return self.indices[places], self.data[places]

    def reader(self, copy_rows: Callable[..., None]) -> Callable[[Any, int], Entries]:
        """Return a function that returns the entries of rows, given how many they are."""

        def read(rows: Any, size: int) -> Entries:
            columns, values = np.empty(size, self.indices.dtype), np.empty(size, np.float32)
            copy_rows(len(rows), rows, self.indptr, self.indices, self.data, columns, values)
            return columns, values

        return read

    def scaled(self, sums: NDArray[np.float32], columns: Any = ...) -> NDArray[np.float32]:
        """Return the sums: these values need no scale."""
        return sums


def row_places(
    bounds: NDArray[np.integer[Any]], rows: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """Return the places of all entries of some rows, one row after the other, and their lengths."""
    starts = bounds[rows]
    lengths = bounds[rows + 1] - starts
    return ranges(starts, lengths), lengths


def as_stored(matrix: Any) -> StoredRows:
    """Return a matrix, perhaps of scipy's type, as stored rows; nothing is copied."""
    if isinstance(matrix, StoredRows):
        return matrix
    return SparseRows(matrix.data, matrix.indices, matrix.indptr, matrix.shape)


def as_csr(matrix: Any) -> Any:
    """Return a matrix as scipy's type; plain arrays are not copied."""
    if not isinstance(matrix, StoredRows):
        return matrix
    from scipy.sparse import csr_matrix

    # Set one by one: the constructor would read, and perhaps copy, every page of mapped files.
    rows = matrix.as_rows()
    found = csr_matrix(rows.shape, dtype=rows.data.dtype)
    found.data, found.indices, found.indptr = rows.data, rows.indices, rows.indptr
    return found


def column_of(matrix: Any, rows: NDArray[np.integer[Any]], column: int) -> NDArray[np.float32]:
    """Return the values of a column in some rows of a matrix, perhaps of scipy's type."""
    chosen = as_csr(as_stored(matrix).take(rows))
    found: NDArray[np.float32] = chosen[:, [column]].toarray().ravel()
    return found


def combined_rows(combine: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return a CSR matrix made of two with the same rows, part by part.

    Args:
        combine: Returns the matrix of some rows of both, such as their sum, with no more entries
            than both have.
        left: A float32 CSR matrix. It is used up: its arrays become those of the result, so that
            the entries are not in memory twice.
        right: Another.
    """
    from scipy.sparse import csr_matrix

    moved = right.nnz  # the places that the entries of `left` make free before them
    size, bounds = left.nnz, left.indptr
    values, columns = (
        array if array.flags.owndata else array.copy() for array in (left.data, left.indices)
    )
    for array in (values, columns):
        array.resize(size + moved, refcheck=False)
        array[moved:] = array[:size]
    lengths, end, n_columns = [np.zeros(1, np.int64)], 0, 0
    for start in range(0, left.shape[0], _ROWS_COMBINED):
        own = bounds[start : start + _ROWS_COMBINED + 1]
        entries = slice(moved + int(own[0]), moved + int(own[-1]))
        n_rows = len(own) - 1
        part = csr_matrix(
            (values[entries], columns[entries], own - own[0]), (n_rows, left.shape[1])
        )
        part = combine(part, right[start : start + n_rows])
        part.sort_indices()
        begin, end, n_columns = end, end + part.nnz, part.shape[1]
        columns[begin:end], values[begin:end] = part.indices, part.data
        lengths.append(np.diff(part.indptr))
    ends = np.cumsum(np.concatenate(lengths))
    for array in (values, columns):
        array.resize(end, refcheck=False)
    kind = columns.dtype if end <= np.iinfo(columns.dtype).max else np.int64
    columns = columns.astype(kind, copy=False)
    return as_csr(SparseRows(values, columns, ends.astype(kind), (left.shape[0], n_columns)))


def move_last(matrix: Any, rows: NDArray[np.int64]) -> Any:
    """Return a CSR matrix with some of its rows after all others.

    It has the same arrays, which are changed, so that the entries are not in memory twice.
    """
    from scipy.sparse import csr_matrix

    last, bounds = matrix[rows], matrix.indptr
    stays = np.ones(matrix.shape[0], bool)
    stays[rows] = False
    end = 0
    for start in range(0, len(stays), _ROWS_AT_A_TIME):
        some = slice(start, start + _ROWS_AT_A_TIME)
        stay = np.repeat(stays[some], np.diff(bounds[start : some.stop + 1]))
        entries = slice(bounds[start], bounds[start] + len(stay))
        begin, end = end, end + int(stay.sum())
        for array in (matrix.data, matrix.indices):
            array[begin:end] = array[entries][stay]
    matrix.data[end:], matrix.indices[end:] = last.data, last.indices
    lengths = np.concatenate([[0], np.diff(bounds)[stays], np.diff(last.indptr)])
    moved = np.cumsum(lengths).astype(bounds.dtype)
    return csr_matrix((matrix.data, matrix.indices, moved), matrix.shape)
