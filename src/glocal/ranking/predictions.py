"""Predictions: the k best labels of every document.

- `indices int64 (n, k)` and `scores float32 (n, k)`, sorted by score, exact ties by label index;
- a document with fewer than k labels ends in empty slots: index -1, score -inf;
- they know their labels, so that iterating gives tags with ids and names;
- the experts' own predictions are attributes of the model's: `predictions.experts["A-1"]`;
- on disk they are a Parquet file of two list columns, written under a temporary name and renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools, Floats32, Ints
from glocal.data.atomic import atomic_write
from glocal.errors import DataError
from glocal.metrics.topk_order import sort_topk

if TYPE_CHECKING:
    import pyarrow as pa

    from glocal.vocabulary.label_space import LabelSpace


class Tag(NamedTuple):
    """A predicted label: its id, its name and its score, a probability by default."""

    id: str
    name: str
    score: float


@dataclass(frozen=True, eq=False)
class Predictions:
    """The best labels of n documents.

    Iterating gives the tags of each document, best first; `predictions[0]` are those of the first.

    Scores given must decrease; exact ties and the scores of empty slots are put right here.

    Attributes:
        indices: Label indices, int64 (n, k); -1 marks an empty slot, only at the end of a row.
        scores: Their scores, float32 (n, k); those of empty slots are -inf.
        labels: The label space that the indices refer to; None if it is not known.
        experts: Each expert's own predictions by its name, where they were asked for. Their scores
            are not calibrated.
        mean: Predictions by the mean of the experts' probabilities, where they were asked for.

    Raises:
        DataError: When shapes or types are not as said, or scores are not sorted.

    Example:
        >>> import numpy as np
        >>> from glocal import Predictions
        >>> best = Predictions(np.array([[2, 0]]), np.array([[0.9, 0.2]], dtype=np.float32))
        >>> best.above(0.5).indices
        array([[ 2, -1]])
    """

    indices: Ints
    scores: Floats32
    labels: LabelSpace | None = None
    experts: Mapping[str, Predictions] = field(default_factory=dict)
    mean: Predictions | None = None

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
        ties = (scores[:, 1:] == scores[:, :-1]) & (labels[:, 1:] < labels[:, :-1])
        if ties.any() or np.isfinite(scores[labels < 0]).any():
            indices, scores = sort_topk(labels, scores)
            object.__setattr__(self, "indices", indices)
            object.__setattr__(self, "scores", scores)

    @classmethod
    def from_unsorted(
        cls,
        indices: NDArray[np.integer],
        scores: NDArray[np.floating],
        k: int | None = None,
        *,
        labels: LabelSpace | None = None,
    ) -> Predictions:
        """Sort each document's labels and keep the best k of them.

        Example:
            >>> import numpy as np
            >>> from glocal import Predictions
            >>> Predictions.from_unsorted(np.array([[0, 2]]), np.array([[0.2, 0.9]]), k=1).indices
            array([[2]])
        """
        return cls(*sort_topk(indices, scores, k), labels)

    @classmethod
    def concat(cls, parts: Sequence[Predictions]) -> Predictions:
        """Join predictions of several runs of documents; narrower ones end in empty slots.

        Example:
            >>> from glocal import Predictions
            >>> len(Predictions.concat([predictions, predictions]))
            4
        """
        if not parts:
            return cls(np.empty((0, 0), np.int64), np.empty((0, 0), np.float32))
        width, first = max(part.k for part in parts), parts[0]
        means = [part.mean for part in parts if part.mean is not None]
        return cls(
            np.concatenate([_widened(part.indices, width, -1) for part in parts]),
            np.concatenate([_widened(part.scores, width, -np.inf) for part in parts]),
            first.labels,
            {name: cls.concat([part.experts[name] for part in parts]) for name in first.experts},
            cls.concat(means) if len(means) == len(parts) else None,
        )

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        experts = f", experts={list(self.experts)}" if self.experts else ""
        return f"Predictions({len(self)} documents, k={self.k}{experts})"

    def __iter__(self) -> Iterator[list[Tag]]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> list[Tag]:
        labels, filled = self.known_labels, int((self.indices[row] >= 0).sum())
        indices, scores = self.indices[row, :filled].tolist(), self.scores[row, :filled].tolist()
        return [
            Tag(labels.ids[index], labels.names[index], score)
            for index, score in zip(indices, scores, strict=True)
        ]

    def label_ids(self, row: int) -> list[str]:
        """Return the label ids of a document, best first.

        Example:
            >>> predictions.label_ids(0)
            ['fruit', 'animal']
        """
        return [tag.id for tag in self[row]]

    def label_names(self, row: int) -> list[str]:
        """Return the label names of a document, best first.

        Example:
            >>> predictions.label_names(1)
            ['animal', 'fruit']
        """
        return [tag.name for tag in self[row]]

    @property
    def known_labels(self) -> LabelSpace:
        """The label space that the indices refer to.

        Raises:
            DataError: It is not known.
        """
        if self.labels is None:
            raise DataError(
                "these predictions do not know their label space, so they have no label ids or "
                "names; set it with predictions.with_labels(labels)"
            )
        return self.labels

    @property
    def k(self) -> int:
        """Number of slots of each document."""
        return int(self.indices.shape[1])

    def with_labels(self, labels: LabelSpace) -> Predictions:
        """Return the same predictions, of all experts too, that know their label space.

        Example:
            >>> from glocal import Predictions
            >>> plain = Predictions(predictions.indices, predictions.scores)
            >>> plain.with_labels(predictor.labels).label_ids(0)
            ['fruit', 'animal']
        """
        return replace(self._changed(lambda part: part.with_labels(labels)), labels=labels)

    def head(self, k: int) -> Predictions:
        """Return the best k labels of each document, of all experts too.

        Example:
            >>> predictions.head(1).label_ids(0)
            ['fruit']
        """
        return self._changed(lambda part: part.head(k), np.s_[:, :k])

    def take(self, order: NDArray[Any]) -> Predictions:
        """Return some documents, or all in another order, by positions or by a mask.

        Example:
            >>> import numpy as np
            >>> predictions.take(np.array([1, 0])).label_ids(0)
            ['animal', 'fruit']
        """
        return self._changed(lambda part: part.take(order), order)

    def _changed(
        self, change: Callable[[Predictions], Predictions], selection: Any = np.s_[:]
    ) -> Predictions:
        """Select from both arrays, and change every expert's predictions and the mean's."""
        return Predictions(
            self.indices[selection],
            self.scores[selection],
            self.labels,
            {name: change(part) for name, part in self.experts.items()},
            None if self.mean is None else change(self.mean),
        )

    def above(self, threshold: float) -> Predictions:
        """Keep labels that score at least `threshold`; experts' own predictions are dropped.

        Example:
            >>> predictions.above(2.0).label_ids(0)
            []
        """
        return self.masked(self.scores >= threshold)

    def masked(self, keep: Bools) -> Predictions:
        """Keep the slots where the mask (n, k) is true and close the gaps.

        The experts' own predictions are dropped, since the mask is not about them.

        Example:
            >>> predictions.masked(predictions.indices == 0).label_ids(0)
            ['animal']
        """
        kept = np.where(keep, self.indices, -1)
        return Predictions.from_unsorted(kept, self.scores, labels=self.labels)

    def save(self, path: str | Path) -> None:
        """Write a Parquet file of indices and scores, complete or not at all.

        Label names and the experts' own predictions are not stored.

        Example:
            >>> predictions.save("predictions.parquet")
        """
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
        """Read a file that `save` wrote.

        Example:
            >>> from glocal import Predictions
            >>> predictions.save("predictions.parquet")
            >>> Predictions.load("predictions.parquet").with_labels(predictor.labels).label_ids(0)
            ['fruit', 'animal']
        """
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

    flat = pa.array(np.ascontiguousarray(values).ravel())
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
    return np.asarray(flat.to_numpy().reshape(len(column), width))
