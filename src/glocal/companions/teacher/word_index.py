"""The nearest training texts of a text by the words they share.

- A text is its heaviest words, each weighed by damped count and rarity, at length 1; the similarity
  of two texts is the cosine. Words that most texts have are light and so left out, which keeps the
  lists of texts for each word short: 45,000 texts are compared with one another in seconds.
- Similarities do not depend on how many texts are asked for at a time; equal ones are ordered by
  position. Texts without a word in common, or without a known word, are nobody's neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.encoders.static import StaticVectors
from glocal.errors import ModelError

__all__ = ["WordIndex"]

QUERIES = 256  # looked up at a time
FILES = {"data": "words.npy", "indices": "word-places.npy", "indptr": "word-offsets.npy"}

Rows = NDArray[np.int64]
Similarities = NDArray[np.float32]


class WordIndex:
    """The heaviest words of training texts, searched by cosine.

    Args:
        words: CSR (N, V) of length 1, or empty rows.
        heaviest: How many words of a text are kept.
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
            vectors: Weighs the words of texts.
            heaviest: How many words of a text are kept.
            progress: Called with the texts done.
        """
        from scipy.sparse import vstack

        parts = []
        for texts in batches:
            parts.append(_heaviest(vectors.weigh(texts), heaviest))
            if progress is not None:
                progress(sum(part.shape[0] for part in parts))
        return cls(vstack(parts, format="csr"), heaviest=heaviest)

    def __len__(self) -> int:
        return int(self.words.shape[0])

    def keep(self, rows: Rows) -> WordIndex:
        """An index of some of its texts."""
        return WordIndex(self.words[rows], heaviest=self.heaviest)

    def queries(self, texts: Sequence[str], own: Rows, vectors: StaticVectors) -> Any:
        """Texts as this index compares them, (n, V).

        Args:
            texts: The texts.
            own: Where each is among the training texts; -1 for a new one.
            vectors: Weighs the words of new ones.
        """
        from scipy.sparse import vstack

        (known,), (new,) = np.nonzero(own >= 0), np.nonzero(own < 0)
        parts = [self.words[own[known]]]
        if len(new):
            weighed = vectors.weigh([texts[int(i)] for i in new])
            parts.append(_heaviest(weighed, self.heaviest))
        return vstack(parts, format="csr")[np.argsort(np.append(known, new))]

    def search(
        self, queries: Any, k: int, *, exclude: Rows | None = None
    ) -> tuple[Rows, Similarities]:
        """The nearest training texts of each text.

        Args:
            queries: (n, V) as `queries` gives them.
            k: How many are asked for.
            exclude: For each text the row that is not to be found; -1 for none.

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
        """(V, N): the texts each word is among the heaviest of."""
        return self.words.T.tocsr()

    def save(self, folder: Path) -> None:
        """Write the words."""
        for part, name in FILES.items():
            np.save(folder / name, getattr(self.words, part), allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, *, n_words: int, heaviest: int) -> WordIndex:
        """Read what `save` wrote.

        Args:
            folder: Where it is.
            n_words: The columns of the matrix.
            heaviest: How many words of a text are kept.

        Raises:
            ModelError: A file is missing or damaged.
        """
        from scipy.sparse import csr_matrix

        try:
            data, indices, indptr = (
                np.load(folder / name, allow_pickle=False) for name in FILES.values()
            )
            words = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, n_words))
            words.check_format(full_check=True)
        except (OSError, ValueError, EOFError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"the index in {folder} is damaged or incomplete: {reason}") from error
        return cls(words, heaviest=heaviest)


def _heaviest(weighed: Any, count: int) -> Any:
    """The heaviest words of each row, of equal ones the first, at length 1."""
    from scipy.sparse import csr_matrix

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
    """The k best of a text's products, in order of score, then of position."""
    there = (scores > 0) & (rows != exclude)
    rows, scores = rows[there], np.round(scores[there], 6)  # sums of one order all the same
    if len(rows) > k:
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows, scores = rows[scores >= kth], scores[scores >= kth]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]
