"""Gold labels in canonical form, and the search for hits in them.

- documents without gold are excluded here, once, and counted;
- gold columns beyond the label space stay: they can never be predicted, so they count as misses;
- hits come from one sorted search of (row, column) keys, so time and memory grow with the number of
  predictions and gold labels, never with documents × labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Gold:
    """The gold labels of the documents that have any.

    Attributes:
        matrix: CSR of these documents × label columns; sorted, no duplicates, no stored zeros.
        kept: Row of each of these documents in the original matrix, int64 (m,).
        n_documents: Number of rows of the original matrix.
    """

    matrix: Any
    kept: NDArray[np.int64]
    n_documents: int

    @property
    def n_columns(self) -> int:
        """Number of label columns, gold labels outside the label space included."""
        return int(self.matrix.shape[1])

    @property
    def left_out(self) -> int:
        """Number of documents without gold."""
        return self.n_documents - len(self.kept)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of gold labels of each kept document."""
        return np.asarray(np.diff(self.matrix.indptr), dtype=np.int64)


def prepare_gold(gold: Any) -> Gold:
    """Bring gold labels into canonical form and exclude documents without any.

    Args:
        gold: Sparse matrix of documents × labels; nonzero entries are gold.
    """
    if isinstance(gold, Gold):
        return gold
    if not sparse.issparse(gold):
        raise ValueError(f"gold must be a scipy sparse matrix, not {type(gold).__name__}")
    matrix = _canonical(gold)
    kept = np.flatnonzero(np.diff(matrix.indptr))
    rows = matrix if len(kept) == matrix.shape[0] else matrix[kept]
    return Gold(rows, kept.astype(np.int64), int(matrix.shape[0]))


def _canonical(gold: Any) -> Any:
    matrix = sparse.csr_matrix(gold)
    if matrix.has_canonical_format and np.count_nonzero(matrix.data) == matrix.nnz:
        return matrix
    matrix = matrix.copy()
    # Remove zeros first: two stored values that cancel out would otherwise hide a gold label.
    matrix.eliminate_zeros()
    matrix.data = np.ones(matrix.nnz)
    matrix.sum_duplicates()
    return matrix


def hit_matrix(indices: NDArray[np.int64], matrix: Any) -> NDArray[np.bool_]:
    """Return which predictions are gold, (n, k); false at empty slots.

    Args:
        indices: Predicted columns (n, k), -1 for an empty slot.
        matrix: CSR in canonical form, with n rows.
    """
    n_rows, n_columns = matrix.shape
    _check_indices(indices, n_rows, n_columns)
    sizes = np.diff(matrix.indptr)
    gold_keys = np.repeat(np.arange(n_rows), sizes) * n_columns + matrix.indices
    if not len(gold_keys):
        return np.zeros(indices.shape, dtype=bool)
    keys = np.arange(n_rows)[:, None] * n_columns + indices
    places = np.searchsorted(gold_keys, keys)
    places[places == len(gold_keys)] = 0
    return np.asarray((gold_keys[places] == keys) & (indices >= 0))


def _check_indices(indices: NDArray[np.int64], n_rows: int, n_columns: int) -> None:
    if indices.ndim != 2 or len(indices) != n_rows:
        raise ValueError(
            f"predictions must have the shape (documents, k) with the {n_rows} documents of the "
            f"gold labels, not {indices.shape}"
        )
    if indices.size and (indices.min() < -1 or indices.max() >= n_columns):
        raise ValueError(
            f"predicted labels must be between -1 (empty) and {n_columns - 1}, "
            f"not {indices.min()} to {indices.max()}"
        )


def best_weights(gold: Gold, weights: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the k largest weights among each document's gold labels, padded with 0.

    Args:
        gold: Prepared gold labels.
        weights: Weight of each column.
        k: Number of weights per document.
    """
    sizes = gold.sizes
    rows = np.repeat(np.arange(len(sizes)), sizes)
    values = weights[gold.matrix.indices]
    order = np.lexsort((-values, rows))
    rank = np.arange(len(order)) - np.repeat(gold.matrix.indptr[:-1], sizes)
    best = np.zeros((len(sizes), k))
    within = rank < k
    best[rows[within], rank[within]] = values[order][within]
    return best
