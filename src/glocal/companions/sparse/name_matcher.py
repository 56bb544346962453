"""Scores of labels whose name, or most of it, is in a text.

    score = slope · ln(1 + 100 · evidence)
    evidence = (features · weights) × share + features · relatives

The share of a name is the part of its words that the text contains, each word counted by its
rarity; of several names the one found best counts. It is no linear function of the features: half
of a name twice is less than the whole name once. The words of all names form an inverted index, so
that a text reads only the names it shares a word with. The logarithm keeps strong evidence from
making a label certain. Labels with training texts, whose words have trained weights, get the score
`slope` where the share is at least `FOUND`, and zero otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import SparseRows, as_csr, column_of, row_places
from glocal.companions.sparse.sparse_scoring import dense_product

_SCALE = np.float32(100)  # evidence of a hundredth is weak
# The share at which a name is found; words with another ending count 0.7 (`name_features`).
FOUND = np.float32(0.69)
_EVIDENCE = np.float32(np.expm1(1)) / _SCALE  # its score is the slope


@dataclass(frozen=True)
class NameMatcher:
    """Scores labels by the words of their names.

    Args:
        labels: (U,) int64, the labels it scores, sorted; each has a name.
        slopes: (U,) float32, the factors of their scores.
        weights: (F, U) float32 CSR matrix, evidence of features where the whole name is found.
        relatives: (F, U) float32 CSR matrix, evidence of features whatever name is found.
        words: (F, W) float32 CSR matrix, how well a feature stands for a word of names, up to one.
        shares: (W, N) float32 CSR matrix, the share of each word in each name.
        bounds: (U + 1,) int64, where the names of each label begin, and the end of the last.
        trained: (U,) bool, labels that have training texts.
    """

    labels: NDArray[np.int64]
    slopes: NDArray[np.float32]
    weights: Any
    relatives: Any
    words: Any
    shares: Any
    bounds: NDArray[np.int64]
    trained: NDArray[np.bool_]

    def scores(self, features: Any) -> NDArray[np.float32]:
        """Return the scores (n, U) of the texts of a CSR matrix."""
        evidence = np.maximum(self.evidence(features), 0)
        scores: NDArray[np.float32] = self.slopes * np.log1p(_SCALE * evidence)
        return scores

    def gains(
        self, features: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Return the scores that are not zero: their texts, labels and values.

        Of a million names a text shares words with few, and the logarithm of all would cost most.
        """
        if self.trained.all():
            return self._gains_of_trained(features)
        evidence = self.evidence(features)
        rows, places = np.divmod(np.flatnonzero(evidence > 0), max(1, len(self.labels)))
        found = evidence[rows, places]
        return rows, self.labels[places], self.slopes[places] * np.log1p(_SCALE * found)

    def _gains_of_trained(
        self, features: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Return the same where all labels have texts: few names are found, others cost little."""
        by_name = dense_product(self._words_found(features), self.shares)
        rows, places = np.divmod(np.flatnonzero(by_name >= FOUND), max(1, by_name.shape[1]))
        if by_name.shape[1] > len(self.labels):  # names of a label are next to each other
            places = np.searchsorted(self.bounds, places, side="right") - 1
            first = np.diff(places, prepend=-1) != 0
            first |= np.diff(rows, prepend=-1) != 0
            rows, places = rows[first], places[first]
        return rows, self.labels[places], self.slopes[places]

    def evidence(self, features: Any) -> NDArray[np.float32]:
        """Return the evidence (n, U) of the texts of a CSR matrix, from 0 up to about 1."""
        found = self.found(features)
        if self.trained.all():
            return (found >= FOUND) * _EVIDENCE
        evidence = dense_product(features, self.weights)
        evidence *= found
        evidence += dense_product(features, self.relatives)
        evidence[:, self.trained] = (found[:, self.trained] >= FOUND) * _EVIDENCE
        return evidence

    def found(self, features: Any) -> NDArray[np.float32]:
        """Return the share (n, U) of each label's name in texts, of the name found best."""
        by_name = dense_product(self._words_found(features), self.shares)
        if by_name.shape[1] == len(self.labels):  # one name each
            return by_name
        return np.maximum.reduceat(by_name, self.bounds[:-1], axis=1)

    def label_weights(self, label: int, text: Any) -> NDArray[np.float32]:
        """Return the weights of a text's features for one label, which add up to its score.

        Args:
            label: The label.
            text: (1, F) CSR matrix of the text.
        """
        place = int(np.searchsorted(self.labels, label))
        if place == len(self.labels) or self.labels[place] != label:
            return np.zeros(len(text.indices), np.float32)
        by_name, by_relatives = (
            column_of(matrix, text.indices, place) for matrix in (self.weights, self.relatives)
        )
        share = self.found(text)[0, place]
        weights: NDArray[np.float32] = by_name * share + by_relatives
        evidence = float(text.data @ weights)
        told = (share >= FOUND) * _EVIDENCE if self.trained[place] else max(evidence, 0.0)
        score = float(self.slopes[place] * np.log1p(_SCALE * told))
        return weights * np.float32(score / evidence if evidence else 0.0)

    def scores_of(self, labels: NDArray[np.int64], features: Any) -> NDArray[np.float32]:
        """Return the scores (n, k) of some labels, zero for those without a name."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(labels), np.float32)
        size = max(labels.max(initial=-1), self.labels.max(initial=-1)) + 1
        chosen = csr_matrix((ones, (labels, np.arange(len(labels)))), (size, len(labels)))
        own = self.with_labels(chosen)
        scores = np.zeros((features.shape[0], len(labels)), np.float32)
        scores[:, own.labels] = own.scores(features)
        return scores

    def with_labels(self, columns: Any) -> NameMatcher:
        """Return the matcher after a change of the labels; see `LabelChange`.

        Labels that are merged keep the names of all of them.
        """
        own = columns[self.labels].tocsc()  # (U, labels afterwards)
        labels = np.flatnonzero(np.diff(own.indptr))
        own = own[:, labels]
        names, counts = row_places(self.bounds, own.indices)
        ends = np.concatenate([[0], np.cumsum(counts)])
        return NameMatcher(
            labels.astype(np.int64),
            (self.slopes @ own).astype(np.float32),
            (as_csr(self.weights) @ own).tocsr(),
            (as_csr(self.relatives) @ own).tocsr(),
            self.words,
            as_csr(self.shares)[:, names],
            ends[own.indptr].astype(np.int64),
            np.asarray(self.trained.astype(np.float32) @ own) > 0,
        )

    def joined(self, others: NameMatcher, *, offset: int) -> NameMatcher:
        """Return a matcher of these labels and of others, which are numbered from `offset` on."""
        from scipy.sparse import block_diag, hstack

        return NameMatcher(
            np.concatenate([self.labels, others.labels + offset]),
            np.concatenate([self.slopes, others.slopes]),
            hstack([as_csr(self.weights), others.weights], format="csr"),
            hstack([as_csr(self.relatives), others.relatives], format="csr"),
            hstack([as_csr(self.words), others.words], format="csr"),
            block_diag([as_csr(self.shares), others.shares], format="csr"),
            np.concatenate([self.bounds, others.bounds[1:] + self.bounds[-1]]),
            np.concatenate([self.trained, others.trained]),
        )

    def in_order(self) -> NameMatcher:
        """Return the matcher with its labels sorted."""
        from scipy.sparse import identity

        return self.with_labels(identity(self.labels.max(initial=-1) + 1, np.float32, "csr"))

    def _words_found(self, features: Any) -> SparseRows:
        """Return (n, W) how well the best feature of each text stands for each word."""
        n_texts, n_words = features.shape[0], self.words.shape[1]
        places, lengths = row_places(self.words.indptr, features.indices)
        texts = np.repeat(np.repeat(np.arange(n_texts), np.diff(features.indptr)), lengths)
        cells = texts * n_words + self.words.indices[places]
        order = np.argsort(cells, kind="stable")
        cells, values = cells[order], self.words.data[places][order]
        first = np.flatnonzero(np.diff(cells, prepend=-1))
        best = np.maximum.reduceat(values, first) if len(first) else values
        rows, columns = np.divmod(cells[first], max(1, n_words))
        bounds = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_texts))])
        return SparseRows(
            best.astype(np.float32),
            columns.astype(np.int32),
            bounds.astype(np.int32),
            (n_texts, n_words),
        )
