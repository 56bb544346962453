"""The vocabulary of words and word pairs, and their counts in texts.

- `VocabularyBuilder` makes two passes over word ids: it counts the texts with each word, then the
  texts with each pair of kept words.
- A pair is one integer, `first · n_words + second`: counting and looking up pairs are sorts and
  binary searches on integers, never strings.
- Features are ordered by spelling, pairs by their words: the same texts give the same columns for
  any batches and threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.spool import WordSpool
from glocal.companions.sparse.threads import ordered_map
from glocal.companions.sparse.words import WordBatch
from glocal.config import SparseConfig

MERGE_PAIRS = 8_000_000
FREQUENT_TEXTS = 1000


@dataclass(frozen=True)
class Counts:
    """Counts of features in texts, as the parts of a CSR matrix."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    counts: NDArray[np.float32]


@dataclass(frozen=True)
class Vocabulary:
    """The features of one part of a text.

    Args:
        words: The words, sorted; word i is feature i.
        pairs: Sorted, `first · n_words + second`; pair j is feature `n_words + j`.
        idf: (features,) float32, ln((1 + n) / (1 + texts with the feature)) + 1; 0 for a word that
            is too frequent to be a feature and is only used in pairs.
    """

    words: list[str] = field(repr=False)
    pairs: NDArray[np.int64] = field(repr=False)
    idf: NDArray[np.float32] = field(repr=False)

    def __len__(self) -> int:
        return len(self.words) + len(self.pairs)

    @cached_property
    def index(self) -> dict[str, int]:
        """The feature of each word."""
        return {word: feature for feature, word in enumerate(self.words)}

    def name(self, feature: int) -> str:
        """Return the word or word pair of a feature."""
        if feature < len(self.words):
            return self.words[feature]
        first, second = divmod(int(self.pairs[feature - len(self.words)]), len(self.words))
        return f"{self.words[first]} {self.words[second]}"

    def word_ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Return the feature of each word, -1 for unknown words."""
        get = self.index.get
        return np.array([get(word, -1) for word in words], dtype=np.int32)

    def pair_ids(self, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the feature of each pair of neighbours in a sequence of words, -1 for none."""
        if not len(self.pairs) or len(ids) < 2:
            return np.full(max(0, len(ids) - 1), -1, dtype=np.int64)
        keys = _pair_keys(ids, len(self.words))
        order = np.argsort(keys)  # searches in order stay near the last one: four times as fast
        keys = keys[order]
        place = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        found = np.empty(len(keys), dtype=np.int64)
        found[order] = np.where(self.pairs[place] == keys, place + len(self.words), -1)
        return found

    def count(self, lengths: NDArray[np.int64], ids: NDArray[np.int32]) -> Counts:
        """Count the features of a batch of texts.

        Args:
            lengths: (texts,) number of words.
            ids: The feature of every word, -1 for unknown words.
        """
        documents = np.repeat(np.arange(len(lengths)), lengths)
        pairs = self.pair_ids(ids)
        pairs[documents[1:] != documents[:-1]] = -1
        rows = np.concatenate([documents, documents[1:]])
        columns = np.concatenate([ids.astype(np.int64), pairs])
        known = columns >= 0
        known[known] = self.idf[columns[known]] > 0
        cells, counts = np.unique(rows[known] * len(self) + columns[known], return_counts=True)
        per_text = np.bincount(cells // max(1, len(self)), minlength=len(lengths))
        return Counts(
            np.concatenate([[0], np.cumsum(per_text)]),
            (cells % max(1, len(self))).astype(np.int32),
            counts.astype(np.float32),
        )


def _pair_keys(ids: NDArray[np.int32], n_words: int) -> NDArray[np.int64]:
    """Return one integer for each two neighbours, -1 where one of them is unknown."""
    first, second = ids[:-1].astype(np.int64), ids[1:].astype(np.int64)
    return np.where((first >= 0) & (second >= 0), first * n_words + second, -1)


class VocabularyBuilder:
    """Collects words batch by batch, then chooses the features.

    Args:
        spool: Where word numbers wait for the later passes.
    """

    def __init__(self, spool: WordSpool) -> None:
        self._spool = spool
        self._ids: dict[str, int] = {}
        self._texts = np.zeros(1024, dtype=np.int64)
        self._n_documents = 0

    def add(self, batch: WordBatch) -> None:
        """Add the words of a batch of texts."""
        ids = self._ids
        numbers = np.array([ids.setdefault(w, len(ids)) for w in batch.words], dtype=np.int32)
        while len(ids) > len(self._texts):
            self._texts = np.concatenate([self._texts, np.zeros_like(self._texts)])
        self._texts[numbers] += texts_with(batch)
        self._n_documents += len(batch.lengths)
        self._spool.add(batch.lengths, numbers[batch.codes])

    def build(self, config: SparseConfig, *, threads: int) -> tuple[Vocabulary, NDArray[np.int32]]:
        """Choose the features.

        Args:
            config: Limits on the number of texts of words and pairs.
            threads: Number of threads.

        Returns:
            The vocabulary, and the feature of each word id of the spool, -1 for none.
        """
        words = list(self._ids)
        kept = np.flatnonzero(self._texts[: len(words)] >= config.min_words)
        kept = kept[np.argsort(np.array([words[i] for i in kept], dtype=object), kind="stable")]
        features = np.full(len(words), -1, dtype=np.int32)
        features[kept] = np.arange(len(kept), dtype=np.int32)
        keys, texts = _no_pairs()
        if config.pairs:
            keys, texts = self._count_pairs(features, len(kept), threads)
            usual = (texts >= config.min_pairs) & (texts <= self._most_texts(config.max_pairs))
            keys, texts = keys[usual], texts[usual]
        idf = np.log((1 + self._n_documents) / (1 + np.concatenate([self._texts[kept], texts]))) + 1
        idf[: len(kept)][self._texts[kept] > self._most_texts(config.max_words)] = 0
        return Vocabulary([words[i] for i in kept], keys, idf.astype(np.float32)), features

    def _most_texts(self, share: float) -> float:
        # In a small corpus a word of many texts may well be what identifies a label.
        return max(FREQUENT_TEXTS, share * self._n_documents)

    def _count_pairs(
        self, features: NDArray[np.int32], n_words: int, threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        def count(
            batch: tuple[NDArray[np.int64], NDArray[np.int32]],
        ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            lengths, ids = batch
            documents = np.repeat(np.arange(len(lengths)), lengths)
            keys = _pair_keys(features[ids], n_words)
            inside = (keys >= 0) & (documents[1:] == documents[:-1])
            space = n_words * n_words
            cells = _distinct(documents[1:][inside] * space + keys[inside])
            return np.unique(cells % max(1, space), return_counts=True)

        pending = [_no_pairs()]
        for found in ordered_map(count, self._spool, threads=threads):
            pending.append(found)
            if sum(len(keys) for keys, _ in pending[1:]) > MERGE_PAIRS:
                pending = [_merge(pending)]
        return _merge(pending)


def _no_pairs() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _merge(
    counted: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Add up counts of the same key; the keys are returned sorted."""
    keys = np.concatenate([keys for keys, _ in counted])
    counts = np.concatenate([counts for _, counts in counted])
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if not len(starts):
        return _no_pairs()
    return keys[starts], np.add.reduceat(counts, starts)


def texts_with(batch: WordBatch) -> NDArray[np.int64]:
    """Return the number of a batch's texts that contain each of its words."""
    n_words = max(1, len(batch.words))
    documents = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
    cells = _distinct(documents * n_words + batch.codes)
    return np.bincount(cells % n_words, minlength=len(batch.words))


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values, sorted; `np.unique` hashes them, at forty times the cost."""
    values = np.sort(values)
    first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]
