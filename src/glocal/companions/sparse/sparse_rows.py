"""A sparse matrix by rows, without scipy.

Importing `scipy.sparse` takes longer than tagging a text. So prediction of a few texts does without
it: stored weights and the features of texts are `SparseRows`, and `as_csr` turns them into scipy's
type where more is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SparseRows:
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

    def __getitem__(self, rows: slice) -> SparseRows:
        """Return neighbouring rows."""
        start, stop, _ = rows.indices(self.shape[0])
        bounds = self.indptr[start : max(start, stop) + 1]
        values = slice(bounds[0], bounds[-1])
        shape = (len(bounds) - 1, self.shape[1])
        return SparseRows(self.data[values], self.indices[values], bounds - bounds[0], shape)


def as_csr(matrix: Any) -> Any:
    """Return a matrix as scipy's type; its arrays are not copied."""
    if not isinstance(matrix, SparseRows):
        return matrix
    from scipy.sparse import csr_matrix

    # Set one by one: the constructor would read, and perhaps copy, every page of mapped files.
    found = csr_matrix(matrix.shape, dtype=matrix.data.dtype)
    found.data, found.indices, found.indptr = matrix.data, matrix.indices, matrix.indptr
    return found


def joined_rows(
    kept: Any, held: Any, kept_rows: NDArray[np.int64], held_rows: NDArray[np.int64]
) -> Any:
    """Return the rows of two CSR matrices in their common order."""
    from scipy.sparse import vstack

    order = np.argsort(np.concatenate([kept_rows, held_rows]), kind="stable")
    return vstack([kept, held], format="csr")[order]
