"""Nearest training texts by the words they share.

- A text is represented by its heaviest words, weighted by damped count and rarity, at length 1; the
  similarity of two texts is the cosine. Words of most texts are light and therefore dropped, which
  keeps the lists of texts per word short: 45,000 texts are compared with one another in seconds.
- Similarities do not depend on the number of queries; ties are broken by position. Texts without a
  common word, or without a known word, are not neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from glocal.arrays import Floats32, Ints
from glocal.data.stored_arrays import check_csr, check_finite, read_array
from glocal.encoders.static import StaticVectors
from glocal.errors import unreadable

QUERIES = 256  # looked up at a time
FILES = {"data": "words.npy", "indices": "word-places.npy", "indptr": "word-offsets.npy"}

Rows = Ints
Similarities = Floats32


class WordIndex:
    """The heaviest words of training texts, searched by cosine.

    Args:
        words: CSR (N, V) of length 1, or empty rows.
        heaviest: Number of words kept of a text.
    """

    def __init__(self, words: Any, *, heaviest: int) -> None:
        self.words, self.heaviest = words, heaviest

    @classmethod
    def of_texts(
        cls,
        batches: Iterable[Sequence[str]],
        vectors: StaticVectors,
        *,
        heaviest: int,
        progress: Callable[[int], None] | None = None,
    ) -> WordIndex:
        """Build an index.

        Args:
            batches: The training texts.
            vectors: Word vectors, whose weights are used.
            heaviest: Number of words kept of a text.
            progress: Called with the number of texts done.
        """
        parts = []
        for texts in batches:
            parts.append(_heaviest(vectors.weigh(texts), heaviest))
            if progress is not None:
                progress(sum(part.shape[0] for part in parts))
        return cls(vstack(parts, format="csr"), heaviest=heaviest)

    def __len__(self) -> int:
        return int(self.words.shape[0])

    def keep(self, rows: Rows) -> WordIndex:
        """Return an index of some of the texts."""
        return WordIndex(self.words[rows], heaviest=self.heaviest)

    def queries(self, texts: Sequence[str], own: Rows, vectors: StaticVectors) -> Any:
        """Return texts as vectors that this index compares, (n, V).

        Args:
            texts: The texts.
            own: Position of each among the training texts; -1 for a new text.
            vectors: Word vectors, whose weights are used for new texts.
        """
        (known,), (new,) = np.nonzero(own >= 0), np.nonzero(own < 0)
        parts = [self.words[own[known]]]
        if len(new):
            weighed = vectors.weigh([texts[int(i)] for i in new])
            parts.append(_heaviest(weighed, self.heaviest))
        return vstack(parts, format="csr")[np.argsort(np.append(known, new))]

    def search(
        self, queries: Any, k: int, *, exclude: Rows | None = None
    ) -> tuple[Rows, Similarities]:
        """Return the nearest training texts of each text.

        Args:
            queries: (n, V) as returned by `queries`.
            k: Neighbours per text.
            exclude: For each text, the row to exclude; -1 for none.

        Returns:
            (n, k) rows, nearest first, -1 where there are fewer; (n, k) similarities, 0 there.
        """
        n_texts = queries.shape[0]
        left_out = np.full(n_texts, -1) if exclude is None else exclude
        rows = np.full((n_texts, k), -1, dtype=np.int64)
        similarities = np.zeros((n_texts, k), dtype=np.float32)

        def look_up(start: int) -> None:
            products = queries[start : start + QUERIES] @ self._texts_of_words
            for place in range(products.shape[0]):
                row = slice(products.indptr[place], products.indptr[place + 1])
                found, scores = _nearest(
                    products.indices[row], products.data[row], k, int(left_out[start + place])
                )
                rows[start + place, : len(found)] = found
                similarities[start + place, : len(found)] = scores

        starts = range(0, n_texts, QUERIES)
        if len(starts) < 2:
            for start in starts:
                look_up(start)
            return rows, similarities
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # scipy's products release the GIL
            list(pool.map(look_up, starts))
        return rows, similarities

    @cached_property
    def _texts_of_words(self) -> Any:
        """(V, N): the texts that each word is one of the heaviest of."""
        return self.words.T.tocsr()

    def save(self, folder: Path) -> None:
        """Write the words."""
        for part, name in FILES.items():
            np.save(folder / name, getattr(self.words, part), allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, *, n_words: int, heaviest: int) -> WordIndex:
        """Read an index written by `save`.

        Args:
            folder: The teacher's folder.
            n_words: Number of columns of the matrix.
            heaviest: Number of words kept of a text.

        Raises:
            ModelError: A file is missing or damaged.
        """
        with unreadable(f"the index in {folder} is damaged or incomplete", OSError, ValueError):
            data, indices, indptr = (
                read_array(folder / name, np.float32 if part == "data" else np.integer)
                for part, name in FILES.items()
            )
            # Before scipy drops what is beyond the bounds.
            shape = (len(indptr) - 1, n_words)
            parts = SimpleNamespace(data=data, indices=indices, indptr=indptr, shape=shape)
            check_csr("the index", parts)
            check_finite("the index", data)
            words = csr_matrix((data, indices, indptr), shape=shape)
        return cls(words, heaviest=heaviest)


def _heaviest(weighed: Any, count: int) -> Any:
    """Return the heaviest words of each row at length 1; ties are broken by column."""
    n_rows = weighed.shape[0]
    row = np.repeat(np.arange(n_rows), np.diff(weighed.indptr))
    order = np.lexsort((weighed.indices, -weighed.data, row))
    rank = np.arange(len(order)) - weighed.indptr[:-1][row]
    kept = np.sort(order[(rank < count) & (weighed.data[order] > 0)])
    row, values = row[kept], weighed.data[kept].astype(np.float64)
    lengths = np.sqrt(np.bincount(row, values**2, minlength=n_rows))
    offsets = np.append(0, np.cumsum(np.bincount(row, minlength=n_rows)))
    unit = (values / lengths[row]).astype(np.float32)
    return csr_matrix((unit, weighed.indices[kept], offsets), shape=weighed.shape)


def _nearest(
    rows: NDArray[np.int32], scores: Similarities, k: int, exclude: int
) -> tuple[NDArray[np.int32], Similarities]:
    """Return the k best of a text's products, ordered by score, then by position."""
    there = (scores > 0) & (rows != exclude)
    rows, scores = rows[there], np.round(scores[there], 6)  # equal whatever the order of summation
    if len(rows) > k:
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows, scores = rows[scores >= kth], scores[scores >= kth]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]
