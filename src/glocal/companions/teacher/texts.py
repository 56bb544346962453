"""The training texts a teacher can find: distinct texts, identified by a hash of their content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from glocal.arrays import Ints
from glocal.data.corpus import Corpus
from glocal.data.duplicates import KEY_BYTES, exact_key, text_keys
from glocal.data.stored_arrays import check_range, read_columns
from glocal.vocabulary.label_space import LabelSpace

KEY = np.dtype((np.void, KEY_BYTES))
SCHEMA = pa.schema(
    [("id", pa.string()), ("key", pa.binary(KEY_BYTES)), ("labels", pa.large_list(pa.int32()))]
)


@dataclass(frozen=True)
class IndexedTexts:
    """Distinct texts and their labels.

    Args:
        ids: Id of each text; that of the first of several equal texts.
        keys: (N,) hashes of the contents.
        labels: CSR (N, L) of ones, the labels of all copies of each text.
    """

    ids: list[str]
    keys: NDArray[np.void]
    labels: Any

    @classmethod
    def of_corpus(
        cls, train: Corpus, labels: LabelSpace, *, n_labels: int
    ) -> tuple[IndexedTexts, Ints]:
        """Return the distinct texts of a corpus in order, and the position of each.

        Args:
            train: The texts.
            labels: The label space; other labels are skipped.
            n_labels: Number of columns of the label matrix, at least that of the label space.
        """
        keys = text_keys(train, near=False)
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.argsort(order)  # from places in the order of keys to places in the order of texts
        first, group = first[order], rank[group]
        ones = np.ones(len(keys), dtype=np.float32)
        copies = csr_matrix((ones, (group, np.arange(len(keys)))), shape=(len(first), len(keys)))
        matrix = (copies @ labels.encode(train)[:, : len(labels)]).tocsr()
        matrix.data.fill(1.0)
        matrix.sort_indices()
        matrix.resize((len(first), n_labels))
        ids = train.ids
        return cls([ids[row] for row in first], keys[first], matrix), first

    def find(self, texts: Sequence[str]) -> Ints:
        """Return the position of each text; -1 for texts that are not among these."""
        keys = np.frombuffer(b"".join(map(exact_key, texts)), dtype=KEY)
        ordered, order = self._ordered
        places = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
        return np.where(ordered[places] == keys, order[places], -1)

    @cached_property
    def _ordered(self) -> tuple[NDArray[np.void], Ints]:
        order = np.argsort(self.keys)
        return self.keys[order], order

    def save(self, path: Path) -> None:
        """Write the texts' ids, hashes and labels to a Parquet file; not the texts themselves."""
        size, content = len(self.ids), pa.py_buffer(self.keys.tobytes())
        keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), size, [None, content])
        offsets = pa.array(self.labels.indptr.astype(np.int64))
        places = pa.array(self.labels.indices.astype(np.int32))
        labels = pa.LargeListArray.from_arrays(offsets, places)
        ids = pa.array(self.ids, pa.string())
        pq.write_table(pa.table({"id": ids, "key": keys, "labels": labels}), path)

    @classmethod
    def load(cls, path: Path, *, n_labels: int) -> IndexedTexts:
        """Read what `save` wrote."""
        table = read_columns(path, SCHEMA)
        keys = np.frombuffer(b"".join(table.column("key").to_pylist()), dtype=KEY)
        lists = table.column("labels").combine_chunks()
        places = lists.flatten().to_numpy().copy()
        offsets = np.append(0, np.cumsum(lists.value_lengths().to_numpy()))
        ones = np.ones(len(places), dtype=np.float32)
        check_range("the labels of texts", places, 0, n_labels)
        matrix = csr_matrix((ones, places, offsets), shape=(table.num_rows, n_labels))
        return cls(table.column("id").to_pylist(), keys, matrix)
