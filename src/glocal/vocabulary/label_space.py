"""The label space: the labels a model knows, in a fixed order.

- It contains training labels with at least `min_count` texts, and with `score_unseen` all labels of
  the label table; sorted by id, so that the same data always gives the same columns.
- Labels of dev and test are never added. In `encode`, gold labels outside the space have columns
  after the last label: they can never be predicted and count as misses.
- Counting and encoding use Arrow's hash tables, not Python loops over documents.
- It is saved as Parquet with the counts, so that bands and propensities can be computed from a
  model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glocal.arrays import Bools, Ints
from glocal.data.atomic import atomic_write
from glocal.data.corpus import Corpus
from glocal.data.stored_arrays import check_range, read_columns
from glocal.errors import DataError

if TYPE_CHECKING:
    from glocal.vocabulary.label_table import LabelTable

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("parents", pa.list_(pa.string())),
        ("count", pa.int64()),
        ("alt_names", pa.list_(pa.string())),
        ("notation", pa.string()),
    ]
)
# Attributes with what is told about each label, as in a label table, and their columns in a file.
DESCRIBED = {
    "ids": "id",
    "names": "name",
    "descriptions": "description",
    "parents": "parents",
    "alt_names": "alt_names",
    "notations": "notation",
}
_LATER = ("alt_names", "notation")  # columns that files of older versions do not have

_MOST_TEXTS = 1 << 53  # counts stay exact as floating-point numbers


@dataclass
class LabelSpace:
    """The labels a model knows.

    Args:
        ids: Ids of the labels, sorted; labels added after training come last.
        names: Their names; the id of a label without one.
        descriptions: Their descriptions, empty strings for none.
        parents: For each label, the ids of the labels right above it, in the space or not.
        counts: Number of training texts of each label, int64.
        n_documents: Number of training texts.
        alt_names: For each label, its other names; none by default.
        notations: Their codes in a classification, empty strings for none.
        n_added: Number of labels at the end that were added after training.

    Example:
        >>> from glocal import Corpus, LabelSpace
        >>> LabelSpace.build(Corpus.from_texts(texts, labels)).ids
        ['animal', 'fruit']
    """

    ids: list[str]
    names: list[str]
    descriptions: list[str]
    parents: list[tuple[str, ...]]
    counts: Ints = field(repr=False)
    n_documents: int
    alt_names: list[tuple[str, ...]] = field(default_factory=list, repr=False)
    notations: list[str] = field(default_factory=list, repr=False)
    n_added: int = 0

    def __post_init__(self) -> None:
        self.alt_names = self.alt_names or [()] * len(self.ids)
        self.notations = self.notations or [""] * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        *,
        table: LabelTable | None = None,
        min_count: int = 1,
        score_unseen: bool = False,
    ) -> LabelSpace:
        """Build the label space of a training corpus.

        Args:
            corpus: The training texts.
            table: Names, descriptions and parents of labels.
            min_count: Labels with fewer texts are skipped.
            score_unseen: Add every label of the table, even without texts.

        Raises:
            DataError: No label is left.
        """
        import pyarrow.compute as pc

        values = pc.list_flatten(corpus.table.column("labels"))
        in_corpus = pa.array(values.unique(), pa.string())
        used = _label_matrix(corpus, in_corpus).indices
        counts = np.bincount(used, minlength=len(in_corpus)).astype(np.int64)
        kept = in_corpus.filter(pa.array(counts >= max(1, min_count)))
        if score_unseen and table is not None:
            kept = pa.concat_arrays([kept, pa.array(table.ids, pa.string())]).unique()
        if not len(kept):
            raise _nothing_left(corpus, n_labels=len(in_corpus), min_count=min_count)
        ids = kept.take(pc.sort_indices(kept))
        known = pc.index_in(ids, value_set=in_corpus).fill_null(len(in_corpus)).to_numpy()
        described = _described(ids.to_pylist(), table)
        return cls(**described, counts=np.append(counts, 0)[known], n_documents=len(corpus))

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each label."""
        return {id_: column for column, id_ in enumerate(self.ids)}

    @property
    def added(self) -> Bools:
        """(L,) whether each label was added after training."""
        return np.arange(len(self)) >= len(self) - self.n_added

    def encode(self, corpus: Corpus) -> Any:
        """Return the labels of a corpus as a sparse matrix of ones.

        Args:
            corpus: The documents; their labels may be outside the space.

        Returns:
            A float32 CSR matrix (documents, labels + unseen), column indices sorted and distinct.
            Labels outside the space have the columns from `len(self)` on, sorted by id.
        """
        import pyarrow.compute as pc

        flat = pc.list_flatten(corpus.table.column("labels"))
        inside = pa.array(self.ids, pa.string())
        missing = flat.filter(pc.invert(pc.is_in(flat, value_set=inside)))
        outside = pa.array(missing.unique(), pa.string())
        outside = outside.take(pc.sort_indices(outside))
        return _label_matrix(corpus, pa.concat_arrays([inside, outside]))

    def save(self, path: str | Path) -> None:
        """Write the space to a Parquet file, atomically."""
        columns = {column: getattr(self, name) for name, column in DESCRIBED.items()}
        table = pa.table({**columns, "count": np.asarray(self.counts)}, schema=SCHEMA)
        numbers = {"n_documents": str(self.n_documents), "n_added": str(self.n_added)}
        table = table.replace_schema_metadata(numbers)
        with atomic_write(path) as file:
            pq.write_table(table, file)

    @classmethod
    def load(cls, path: str | Path) -> LabelSpace:
        """Read a space written by `save`.

        Raises:
            DataError: The file cannot be read or was not written by `save`.
        """
        try:
            absent = {*_LATER} - {*pq.read_schema(path).names}
            table = read_columns(
                Path(path), pa.schema([field for field in SCHEMA if field.name not in absent])
            )
            metadata = table.schema.metadata or {}
            n_documents, n_added = int(metadata[b"n_documents"]), int(metadata.get(b"n_added", 0))
            ids = table.column("id").to_pylist()
            # `to_numpy` would import pandas, where there is one.
            counts = np.array(table.column("count").to_pylist(), dtype=np.int64)
            if not 0 < len(ids) == len(set(ids)):
                raise ValueError("the labels are not distinct, or there are none")
            check_range("the number of added labels", np.array([n_added]), 0, len(ids))
            check_range("the counts of texts", np.append(counts, n_documents), 0, _MOST_TEXTS)
        except FileNotFoundError as error:
            raise DataError("no such file of labels", path=path) from error
        except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError) as error:
            raise DataError(
                f"not a readable file of labels ({str(error).splitlines()[0]:.120}); it is written "
                "when a model is saved",
                path=path,
            ) from error
        stored = {name: column for name, column in DESCRIBED.items() if column not in absent}
        columns: dict[str, list[Any]] = {
            name: table.column(column).to_pylist() for name, column in stored.items()
        }
        for name in {"parents", "alt_names"} & stored.keys():
            columns[name] = [tuple(values) for values in columns[name]]
        return cls(**columns, counts=counts, n_documents=n_documents, n_added=n_added)


def _described(ids: list[str], table: LabelTable | None) -> dict[str, Any]:
    """Return what a table says about labels, by column; others are called by their ids."""
    blanks: list[Any] = ["", (), (), ""]  # all but ids and names
    columns = dict(zip(DESCRIBED, [[*ids], [*ids], *([b] * len(ids) for b in blanks)], strict=True))
    if table is not None:
        known = [(place, table.index[id_]) for place, id_ in enumerate(ids) if id_ in table]
        for name, values in columns.items():
            told = getattr(table, name)
            for place, row in known:
                values[place] = told[row]
    return columns


def _label_matrix(corpus: Corpus, labels: pa.Array) -> Any:
    """Return a CSR matrix of ones (documents, labels); `labels` has every label of the corpus."""
    import pyarrow.compute as pc
    from scipy.sparse import csr_matrix

    column = corpus.table.column("labels")
    lengths = pc.list_value_length(column).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = pc.index_in(pc.list_flatten(column), value_set=labels).to_numpy().copy()
    matrix = csr_matrix(
        (np.ones(len(indices), dtype=np.float32), indices, offsets),
        shape=(len(corpus), len(labels)),
    )
    matrix.sum_duplicates()
    matrix.data.fill(1.0)
    return matrix


def _nothing_left(corpus: Corpus, *, n_labels: int, min_count: int) -> DataError:
    if not n_labels:
        return DataError(
            "no document has labels; training needs them in the field 'labels'", path=corpus.source
        )
    return DataError(
        f"none of the {n_labels} labels has at least {min_count} training texts; lower "
        "min_count or add texts",
        path=corpus.source,
    )
