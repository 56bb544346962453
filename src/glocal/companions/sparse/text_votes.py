"""Votes of the most similar training texts for their labels, a part of the words model's score.

Large collections repeat themselves: editions, volumes and series of the same works. A linear model
of few steps does not memorise single texts; their nearest neighbours do.

- Texts are compared by the cosine of their weighted words, without pairs and pieces.
- The `NEIGHBOURS` most similar training texts vote for their labels, each with the fourth power of
  its similarity. A label with votes v gains slope · ln((v + ε) / ε) of log-odds, others nothing.
- The slope is fitted with the calibration, which also decides whether votes are used (`platt`).
- The training texts are kept by word, so that only the texts that share a word with the new one are
  looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import SparseRows, as_csr, row_places

NEIGHBOURS = 50
_POWER = 4
_FEW_VOTES = np.float32(0.001)  # ε
_LEAST_SIMILARITY = 0.1  # less similar texts have next to no vote


@dataclass(frozen=True)
class TextVotes:
    """The words and labels of the training texts.

    Args:
        texts: (W, n) float32 CSR matrix: the weighted words of each text, of length one, by word.
        labels: (n, L) CSR matrix of ones.
        slope: Log-odds for each unit of the logarithm of a label's votes.
    """

    texts: Any
    labels: Any
    slope: float = 1.0

    @classmethod
    def of(cls, features: Any, labels: Any, n_words: int) -> TextVotes:
        """Return the votes of training texts.

        Args:
            features: (n, F) float32 CSR matrix of the texts; words are the first columns.
            labels: (n, L) CSR matrix of ones.
            n_words: Number of words among the features.
        """
        words = features[:, :n_words].tocsr()
        rows = np.repeat(np.arange(words.shape[0]), np.diff(words.indptr))
        length = np.sqrt(np.bincount(rows, words.data**2, minlength=words.shape[0]))
        words.data /= np.maximum(length, 1e-12)[rows].astype(np.float32)
        return cls(words.T.tocsr(), labels.tocsr().astype(np.float32))

    def gains(self, features: Any) -> Iterator[tuple[NDArray[np.integer], NDArray[np.float32]]]:
        """Yield the labels that similar texts vote for, and their gain in log-odds, text by text.

        Args:
            features: (n, F) CSR matrix of the texts.
        """
        similarity = np.empty(self.texts.shape[1], np.float32)  # fresh memory for each would cost
        for row in range(features.shape[0]):
            neighbours, similarities, _ = self._nearest(features[row : row + 1], similarity)
            labels, places = self._labels_of(neighbours)
            chosen, of = np.unique(labels, return_inverse=True)
            votes = np.bincount(of, similarities[places] ** _POWER, minlength=len(chosen))
            yield chosen, self._gain(votes)

    def shares(self, text: Any, label: int) -> NDArray[np.float32]:
        """Return how much each feature of a text adds to a label's gain.

        It is what the feature brings to the similarity of those who vote for the label.

        Args:
            text: (1, F) CSR matrix, a text.
            label: Index of the label.
        """
        shares = np.zeros(len(text.indices), np.float32)
        similarity = np.empty(self.texts.shape[1], np.float32)
        neighbours, similarities, words = self._nearest(text, similarity)
        labels, places = self._labels_of(neighbours)
        voters = places[labels == label]
        if not len(voters):
            return shares
        votes = similarities[voters] ** _POWER
        by_word = as_csr(self.texts)[text.indices[words]][:, neighbours[voters]].toarray()
        parts = by_word * _unit(text.data[words])[:, None]  # (words, voters), sums to similarities
        shares[words] = (parts / similarities[voters]) @ (votes / votes.sum())
        return shares * self._gain(votes.sum(keepdims=True))

    def _gain(self, votes: NDArray[Any]) -> NDArray[np.float32]:
        gain: NDArray[np.float32] = np.float32(self.slope) * np.log1p(votes / _FEW_VOTES)
        return gain.astype(np.float32)

    def _nearest(
        self, text: Any, similarity: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the nearest texts, their similarities, and which features are words.

        `similarity` (n,) is overwritten.
        """
        words = text.indices < self.texts.shape[0]
        of_word, values = text.indices[words], _unit(text.data[words])
        bounds = self.texts.indptr
        similarity[:] = 0
        for word, value in zip(of_word.tolist(), values.tolist(), strict=True):
            places = slice(bounds[word], bounds[word + 1])
            # A text has a word once, so no place is added to twice.
            similarity[self.texts.indices[places]] += np.float32(value) * self.texts.data[places]
        near = np.flatnonzero(similarity > _LEAST_SIMILARITY)
        if len(near) > NEIGHBOURS:
            edge = np.partition(similarity[near], len(near) - NEIGHBOURS)[len(near) - NEIGHBOURS]
            above = near[similarity[near] > edge]
            level = near[similarity[near] == edge][: NEIGHBOURS - len(above)]
            near = np.sort(np.concatenate([above, level]))
        return near, similarity[near], words

    def _labels_of(self, texts: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Return the labels of some texts, and the place of the text that each belongs to."""
        places, lengths = row_places(self.labels.indptr, texts)
        return self.labels.indices[places], np.repeat(np.arange(len(texts)), lengths)

    def with_labels(self, columns: Any) -> TextVotes:
        """Return the votes for other labels.

        Args:
            columns: (L, new L) matrix, the share of each new label that an old one has.
        """
        labels = (as_csr(self.labels) @ columns).tocsr()
        labels.eliminate_zeros()
        labels.data[:] = 1
        return replace(self, labels=labels)

    def widened(self, n_labels: int) -> TextVotes:
        """Return the votes among more labels, which no text has."""
        known = self.labels
        shape = (known.shape[0], n_labels)
        return replace(self, labels=SparseRows(known.data, known.indices, known.indptr, shape))


def _unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale to length one."""
    length = np.sqrt(np.square(values, dtype=np.float64).sum())
    return values / np.float32(max(length, 1e-12))
