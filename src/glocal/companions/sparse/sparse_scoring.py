"""Scores of texts from sparse weights, and the best labels.

The product of features and weights, both sparse, is dense for a few texts at a time, never for all
of them. Text by text, the weights of its features are copied together and added to a dense row by
two compiled functions of scipy. They release Python's lock, so threads share the work. They take
less than half the time of scipy's product of two sparse matrices, which first finds out where the
product is not zero. A few texts are not worth the import of scipy: numpy adds the same numbers in
the same order.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import SparseRows, as_csr
from glocal.companions.sparse.text_votes import TextVotes
from glocal.companions.sparse.threads import ordered_map

if TYPE_CHECKING:
    from glocal.companions.sparse.name_matcher import NameMatcher

CHUNK_CELLS = 300_000  # a chunk of scores and its groups' share stay in the cache
_FEW_TEXTS = 64  # texts for which scipy is not imported


@dataclass(frozen=True)
class LabelGroups:
    """Weights that the labels of a group share, added to each label's own.

    Args:
        weights: (F, G) float32 CSR matrix.
        of: (L, levels) int32, the groups of each label, from narrow to wide, -1 for none.
    """

    weights: Any
    of: NDArray[np.int32]

    def scores(self, features: Any) -> NDArray[np.float32]:
        """Return what each text's groups add to the scores of all labels, (n, L)."""
        by_group = self.by_group(features)
        total = by_group[:, self.of[:, 0]]
        for groups in self.of.T[1:]:
            total += by_group[:, groups]
        return total

    def by_group(self, features: Any) -> NDArray[np.float32]:
        """Return the scores of all groups, (n, G + 1); the last column is zero, for group -1."""
        scores = np.zeros((features.shape[0], self.weights.shape[1] + 1), np.float32)
        scores[:, :-1] = dense_product(features, self.weights)
        return scores


@dataclass(frozen=True)
class LinearScorer:
    """One linear function of the features for each label.

    Args:
        weights: (F, L) float32 CSR matrix.
        biases: (L,) float32.
        groups: Shared weights of similar labels; None without.
        votes: Votes of similar training texts; None without.
        names: Scores of labels by their names, added to the others; None without.
    """

    weights: Any
    biases: NDArray[np.float32]
    groups: LabelGroups | None = None
    votes: TextVotes | None = None
    names: NameMatcher | None = None

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.biases)

    def scores(self, features: Any) -> NDArray[np.float32]:
        """Return the scores (n, L) of the texts of a CSR matrix; meant for a few texts."""
        scores = dense_product(features, self.weights)
        scores += self.biases
        if self.groups is not None:
            scores += self.groups.scores(features)
        if self.votes is not None:
            self.votes.add_to(scores, features)
        if self.names is not None:
            scores[:, self.names.labels] += self.names.scores(features)
        return scores

    def joined(self, others: LinearScorer) -> LinearScorer:
        """Return a scorer of these labels and of others after them, which have no groups."""
        from scipy.sparse import hstack

        groups = self.groups
        if groups is not None:
            none = np.full((others.n_labels, groups.of.shape[1]), -1, groups.of.dtype)
            groups = replace(groups, of=np.concatenate([groups.of, none]))
        weights = hstack([self.weights, others.weights], format="csr")
        biases = np.concatenate([self.biases, others.biases]).astype(np.float32)
        votes = None if self.votes is None else self.votes.widened(len(biases))
        return LinearScorer(weights, biases, groups, votes, self._joined_names(others))

    def _joined_names(self, others: LinearScorer) -> NameMatcher | None:
        if others.names is None:
            return self.names
        if self.names is None:
            return replace(others.names, labels=others.names.labels + self.n_labels)
        return self.names.joined(others.names, offset=self.n_labels)

    def parts(self, label: int, text: SparseRows) -> NDArray[np.float32]:
        """Return what each feature of a text adds to one label; the bias is left out.

        Args:
            label: Index of the label.
            text: (1, F) the features of the text; the weights of others are not read.
        """
        chosen = as_csr(self.weights)[text.indices]
        weights: NDArray[np.float32] = chosen[:, [label]].toarray().ravel()
        if self.groups is not None:
            shared = as_csr(self.groups.weights)[text.indices]
            for group in self.groups.of[label]:
                if group >= 0:
                    weights += shared[:, [group]].toarray().ravel()
        if self.names is not None:
            weights += self.names.label_weights(label, text)
        parts = text.data * weights
        return parts if self.votes is None else parts + self.votes.shares(text, label)


def dense_product(features: Any, weights: Any) -> NDArray[np.float32]:
    """Return the product of two float32 CSR matrices as a dense array."""
    if features.shape[0] <= _FEW_TEXTS and "scipy.sparse" not in sys.modules:
        return _numpy_product(features, weights)
    try:
        from scipy.sparse._sparsetools import csc_matvec, csr_row_index
    except ImportError:  # not public; another version of scipy may lack them
        return _numpy_product(features, weights)
    bounds, columns, values = weights.indptr, weights.indices, weights.data
    if bounds.dtype != columns.dtype:
        product: NDArray[np.float32] = (as_csr(features) @ as_csr(weights)).toarray()
        return product
    total = np.zeros((features.shape[0], weights.shape[1]), np.float32)
    for row, (start, stop) in enumerate(itertools.pairwise(features.indptr.tolist())):
        chosen = features.indices[start:stop].astype(columns.dtype)
        ends = np.zeros(len(chosen) + 1, columns.dtype)
        np.cumsum(bounds[chosen + 1] - bounds[chosen], out=ends[1:])
        labels, own = np.empty(ends[-1], columns.dtype), np.empty(ends[-1], np.float32)
        csr_row_index(len(chosen), chosen, bounds, columns, values, labels, own)
        value = features.data[start:stop]
        csc_matvec(weights.shape[1], len(chosen), ends, labels, own, value, total[row])
    return total


def _numpy_product(features: Any, weights: Any) -> NDArray[np.float32]:
    total = np.zeros((features.shape[0], weights.shape[1]), np.float32)
    for row, (start, stop) in enumerate(itertools.pairwise(features.indptr.tolist())):
        chosen = features.indices[start:stop]
        starts = weights.indptr[chosen]
        lengths = weights.indptr[chosen + 1] - starts
        before = np.cumsum(lengths) - lengths
        places = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
        parts = weights.data[places] * np.repeat(features.data[start:stop], lengths)
        np.add.at(total[row], weights.indices[places], parts)
    return total


def top_labels(
    scorer: LinearScorer,
    features: Any,
    k: int,
    *,
    allowed: NDArray[np.bool_] | None = None,
    threads: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best labels of each text.

    Args:
        scorer: The weights.
        features: (n, F) CSR matrix of the texts.
        k: Labels per text.
        allowed: (L,) or (n, L) bool, labels that may be returned; all by default.
        threads: Number of threads.

    Returns:
        Labels (n, k), best first, ties by label, -1 where fewer are allowed; their scores, -inf
        there.
    """
    width = min(k, scorer.n_labels)

    def best(rows: slice) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        scores = scorer.scores(features[rows])
        if allowed is not None:
            scores[~np.broadcast_to(_rows_of(allowed, rows), scores.shape)] = -np.inf
        return _top(scores, width)

    indices = np.full((features.shape[0], k), -1, dtype=np.int64)
    scores = np.full((features.shape[0], k), -np.inf, dtype=np.float32)
    chunks = list(_chunks(features.shape[0], scorer.n_labels))
    work = ordered_map(best, chunks, threads=min(threads, max(1, len(chunks))))
    for rows, (found, values) in zip(chunks, work, strict=True):
        indices[rows, :width] = np.where(np.isneginf(values), -1, found)
        scores[rows, :width] = values
    return indices, scores


def _top(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the k largest of each row; ties are broken by column, also at the k-th place."""
    n_labels = scores.shape[1]
    columns = np.empty((len(scores), k), dtype=np.int64)
    for place, row in enumerate(scores):
        edge = np.partition(row, n_labels - k)[n_labels - k] if 0 < k < n_labels else -np.inf
        chosen = np.flatnonzero(row >= edge)
        columns[place] = chosen[np.argsort(-row[chosen], kind="stable")[:k]]
    return columns, np.take_along_axis(scores, columns, axis=1)


def _chunks(n_texts: int, n_labels: int) -> Iterator[slice]:
    size = max(1, min(256, CHUNK_CELLS // max(1, n_labels)))
    return (slice(start, min(n_texts, start + size)) for start in range(0, n_texts, size))


def _rows_of(allowed: NDArray[np.bool_], rows: slice) -> NDArray[np.bool_]:
    return allowed[rows] if allowed.ndim == 2 else allowed
