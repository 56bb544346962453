"""Predictions: the k best labels of every document, as two arrays.

- `indices int64 (n, k)` and `scores float32 (n, k)`, sorted by score, exact ties by label index;
- a document with fewer than k labels ends in empty slots: index -1, score -inf;
- on disk they are a Parquet file of two list columns, written under a temporary name and renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.data.atomic import atomic_write
from glocal.errors import DataError
from glocal.metrics.topk_order import sort_topk

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Predictions"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The best labels of n documents.

    Attributes:
        indices: Label indices, int64 (n, k); -1 marks an empty slot, only at the end of a row.
        scores: Their scores, float32 (n, k); those of empty slots are -inf.

    Scores given must decrease; exact ties and the scores of empty slots are put right here.

    Raises:
        DataError: When shapes or types are not as said, or scores are not sorted.
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.scores.shape:
            raise DataError(
                f"predictions need indices and scores of one shape (documents, k), "
                f"not {self.indices.shape} and {self.scores.shape}"
            )
        if self.indices.dtype != np.int64 or self.scores.dtype != np.float32:
            raise DataError(
                f"predictions need int64 indices and float32 scores, "
                f"not {self.indices.dtype} and {self.scores.dtype}"
            )
        self._check_order()
        self._settle()

    def _check_order(self) -> None:
        labels, scores = self.indices, self.scores
        filled = labels >= 0
        rising = scores[:, 1:] > scores[:, :-1]
        # After an empty slot only empty ones may come.
        wrong = filled[:, 1:] & (rising | ~filled[:, :-1])
        bad = (
            wrong.any(axis=1) | (filled & np.isnan(scores)).any(axis=1) | (labels < -1).any(axis=1)
        )
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"the predictions of document {row} (counted from 0) are not sorted by score, or "
                f"hold a score that is not a number: labels {labels[row].tolist()}, scores "
                f"{scores[row].tolist()}; Predictions.from_unsorted sorts them"
            )

    def _settle(self) -> None:
        """Put exact ties, which rounding may have made, in the order of the label indices."""
        labels, scores = self.indices, self.scores
        filled = labels[:, 1:] >= 0
        ties = filled & (scores[:, 1:] == scores[:, :-1]) & (labels[:, 1:] < labels[:, :-1])
        if ties.any() or np.isfinite(scores[labels < 0]).any():
            indices, scores = sort_topk(labels, scores)
            object.__setattr__(self, "indices", indices)
            object.__setattr__(self, "scores", scores)

    @classmethod
    def from_unsorted(
        cls, indices: NDArray[np.integer], scores: NDArray[np.floating], k: int | None = None
    ) -> Predictions:
        """Sort each document's labels and keep the best k of them."""
        return cls(*sort_topk(indices, scores, k))

    @classmethod
    def concat(cls, parts: Sequence[Predictions]) -> Predictions:
        """Join predictions of several runs of documents; narrower ones end in empty slots."""
        if not parts:
            return cls(np.empty((0, 0), np.int64), np.empty((0, 0), np.float32))
        width = max(part.k for part in parts)
        return cls(
            np.concatenate([_widened(part.indices, width, -1) for part in parts]),
            np.concatenate([_widened(part.scores, width, -np.inf) for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def k(self) -> int:
        """Slots of each document."""
        return int(self.indices.shape[1])

    def head(self, k: int) -> Predictions:
        """The best k labels of each document."""
        return Predictions(self.indices[:, :k], self.scores[:, :k])

    def take(self, order: NDArray[Any]) -> Predictions:
        """Some documents, or all in another order, by positions or by a mask."""
        return Predictions(self.indices[order], self.scores[order])

    def above(self, threshold: float) -> Predictions:
        """Only labels that score at least `threshold`; the others become empty slots."""
        return self.masked(self.scores >= threshold)

    def masked(self, keep: NDArray[np.bool_]) -> Predictions:
        """Only the slots for which the mask (n, k) is true; the order is kept, gaps are closed."""
        return Predictions.from_unsorted(np.where(keep, self.indices, -1), self.scores)

    def save(self, path: str | Path) -> None:
        """Write a Parquet file, complete or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {
            "indices": _list_column(self.indices, pa.int64()),
            "scores": _list_column(self.scores, pa.float32()),
        }
        try:
            with atomic_write(path) as file:
                pq.write_table(pa.table(columns), file)
        except OSError as error:
            raise DataError(
                f"cannot write predictions: {error}; what was there before is unchanged", path=path
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Predictions:
        """Read what `save` wrote."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # A file object, since a path could be taken for a folder of partitions.
            with Path(path).open("rb") as file:
                table = pq.read_table(file, columns=["indices", "scores"])
            return cls(_array(table, "indices", pa.int64()), _array(table, "scores", pa.float32()))
        except (OSError, pa.ArrowException, DataError) as error:
            raise DataError(
                f"not readable as saved predictions: {error}; write the file again with "
                f"Predictions.save",
                path=path,
            ) from error


def _widened(values: NDArray[Any], width: int, fill: float) -> NDArray[Any]:
    missing = width - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing)), constant_values=fill) if missing else values


def _list_column(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(values).ravel(), type=kind)
    if values.shape[1]:
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array([[]] * len(values), type=pa.list_(kind))


def _array(table: pa.Table, name: str, kind: pa.DataType) -> NDArray[Any]:
    column = table.column(name).combine_chunks()
    if getattr(column.type, "value_type", None) != kind:
        raise DataError(f"column '{name}' holds {column.type}, not lists of {kind}")
    flat = column.flatten()
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) > 1 or column.null_count or flat.null_count:
        raise DataError(f"column '{name}' has lists of different lengths or with gaps")
    width = int(lengths[0]) if len(lengths) else getattr(column.type, "list_size", 0)
    return np.asarray(flat.to_numpy(zero_copy_only=False).reshape(len(column), width))
