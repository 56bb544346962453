"""Scores of texts from sparse weights, and the best labels.

The product of features and weights, both sparse, is dense for a few texts at a time, never for all
of them. Text by text, the weights of its features are copied together and added to a dense row by
two compiled functions of scipy. They release Python's lock, so threads share the work. They take
less than half the time of scipy's product of two sparse matrices, which first finds out where the
product is not zero. A few texts are not worth the import of scipy: numpy adds the same numbers in
the same order.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.compact_rows import CompactRows, rounded
from glocal.companions.sparse.sparse_rows import (
    SparseRows,
    StoredRows,
    as_csr,
    as_stored,
    column_of,
    row_places,
)
from glocal.companions.sparse.text_votes import TextVotes
from glocal.companions.sparse.threads import ordered_map

if TYPE_CHECKING:
    from glocal.companions.sparse.name_matcher import NameMatcher

CHUNK_CELLS = 300_000  # a chunk of scores and its groups' share stay in the cache
_FEW_TEXTS = 64  # texts for which scipy is not imported
_MOST_ROWS = 128  # of a chunk
_PARTS = 16  # parts of all scores, for each label wanted, whose largest are found first

Best = tuple[NDArray[np.int64], NDArray[np.float32]]  # labels and their scores, (n, k)


@dataclass(frozen=True)
class LabelGroups:
    """Weights that the labels of a group share, added to each label's own.

    Args:
        weights: (F, G) CSR matrix.
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
        weights: (F, L) CSR matrix.
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
            for row, (voted, gain) in enumerate(self.votes.gains(features)):
                scores[row, voted] += gain
        if self.names is not None:
            texts, labels, gains = self.names.gains(features)
            scores[texts, labels] += gains
        return scores

    @property
    def is_rounded(self) -> bool:
        """Whether the weights are of 16 bits."""
        return CompactRows.of(self.weights) is not None

    def rounded(self, *, in_place: bool = False) -> LinearScorer:
        """Return the same scorer with weights of 16 bits, as they are stored.

        With `in_place` the weights of this one change, which saves memory.
        """
        groups = self.groups
        if groups is not None:
            groups = replace(groups, weights=rounded(groups.weights, in_place=in_place))
        weights = rounded(self.weights, in_place=in_place)
        return replace(self, weights=weights, groups=groups)

    def with_labels(self, columns: Any) -> LinearScorer:
        """Return the scorer of other labels; see `LabelChange`."""
        groups = self.groups
        if groups is not None:
            kept = columns.argmax(axis=0)  # the label with the largest share
            groups = replace(groups, of=groups.of[np.asarray(kept).ravel()])
        return LinearScorer(
            (as_csr(self.weights) @ columns).tocsr(),
            np.asarray(self.biases @ columns, dtype=np.float32),
            groups,
            self.votes and self.votes.with_labels(columns),
            self.names and self.names.with_labels(columns),
        )

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
        weights = column_of(self.weights, text.indices, label)
        if self.groups is not None:
            for group in self.groups.of[label]:
                if group >= 0:
                    weights += column_of(self.groups.weights, text.indices, group)
        if self.names is not None:
            weights += self.names.label_weights(label, text)
        parts = text.data * weights
        return parts if self.votes is None else parts + self.votes.shares(text, label)


def dense_product(features: Any, weights: Any) -> NDArray[np.float32]:
    """Return the product of a float32 CSR matrix and one of weights as a dense array."""
    stored = as_stored(weights)
    if features.shape[0] <= _FEW_TEXTS and "scipy.sparse" not in sys.modules:
        return _numpy_product(features, stored)
    try:
        from scipy.sparse._sparsetools import csc_matvec, csr_row_index
    except ImportError:  # not public; another version of scipy may lack them
        return _numpy_product(features, stored)
    if stored.indptr.dtype != np.int32:  # more than 2³¹ weights
        large: NDArray[np.float32] = (as_csr(features) @ as_csr(stored)).toarray()
        return large
    total = np.zeros((features.shape[0], stored.shape[1]), np.float32)
    read = stored.reader(csr_row_index)
    chosen = features.indices.astype(np.int32, copy=False)
    ends = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(stored.indptr[chosen + 1] - stored.indptr[chosen], out=ends[1:])
    for row, (start, stop) in enumerate(itertools.pairwise(features.indptr.tolist())):
        own_ends = (ends[start : stop + 1] - ends[start]).astype(np.int32)
        labels, own = read(chosen[start:stop], own_ends[-1])
        value = features.data[start:stop]
        csc_matvec(stored.shape[1], stop - start, own_ends, labels, own, value, total[row])
    return stored.scaled(total)


def _numpy_product(features: Any, weights: StoredRows) -> NDArray[np.float32]:
    total = np.zeros((features.shape[0], weights.shape[1]), np.float32)
    for row, (start, stop) in enumerate(itertools.pairwise(features.indptr.tolist())):
        places, lengths = row_places(weights.indptr, features.indices[start:stop])
        labels, own = weights.at(places)
        np.add.at(total[row], labels, own * np.repeat(features.data[start:stop], lengths))
    return weights.scaled(total)


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
    (found,) = top_of_sets(scorer, features, [LabelSet(k, allowed)], threads=threads)
    return found


@dataclass(frozen=True)
class LabelSet:
    """Labels of which the best are asked for.

    Args:
        k: Number of labels per text.
        allowed: (L,) or (n, L) bool, the labels; all by default.
    """

    k: int
    allowed: NDArray[np.bool_] | None = None

    @cached_property
    def columns(self) -> NDArray[np.int64] | None:
        """The labels, where they are the same for all texts and not all of them."""
        if self.allowed is None or self.allowed.ndim == 2 or self.allowed.all():
            return None
        return np.flatnonzero(self.allowed)

    def within(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return those of the labels that are allowed as well."""
        return allowed if self.allowed is None else self.allowed & allowed

    def best(self, scores: NDArray[np.float32], rows: slice) -> Best:
        """Return the best labels of some texts (`rows`) by the scores (n, L) of all labels."""
        columns = self.columns
        if columns is not None:
            found, values = _top(scores[:, columns], min(self.k, len(columns)))
            found = columns[found]
        else:
            if self.allowed is not None and self.allowed.ndim == 2:
                scores = np.where(self.allowed[rows], scores, np.float32(-np.inf))
            found, values = _top(scores, min(self.k, scores.shape[1]))
        return np.where(np.isneginf(values), -1, found), values


def top_of_sets(
    scorer: LinearScorer, features: Any, sets: Sequence[LabelSet], *, threads: int = 1
) -> list[Best]:
    """Return the best labels of each text out of several sets; every text is scored once.

    Args:
        scorer: The weights.
        features: (n, F) CSR matrix of the texts.
        sets: The sets.
        threads: Number of threads.

    Returns:
        For each set, labels and scores as `top_labels` returns them.
    """

    def best(rows: slice) -> list[Best]:
        scores = scorer.scores(features[rows])
        return [some.best(scores, rows) for some in sets]

    n_texts = features.shape[0]
    if n_texts > _FEW_TEXTS:
        importlib.import_module("scipy.sparse")  # now, since chunks are of few texts
    results = [
        (
            np.full((n_texts, some.k), -1, dtype=np.int64),
            np.full((n_texts, some.k), -np.inf, dtype=np.float32),
        )
        for some in sets
    ]
    chunks = list(_chunks(n_texts, scorer.n_labels))
    work = ordered_map(best, chunks, threads=min(threads, max(1, len(chunks))))
    for rows, of_sets in zip(chunks, work, strict=True):
        for (indices, scores), (found, values) in zip(results, of_sets, strict=True):
            indices[rows, : found.shape[1]], scores[rows, : found.shape[1]] = found, values
    return results


def _top(scores: NDArray[np.float32], k: int) -> Best:
    """Return the k largest of each row; ties are broken by column, also at the k-th place."""
    n_rows, size = scores.shape
    if not k or not n_rows:
        return np.empty((n_rows, k), dtype=np.int64), np.empty((n_rows, k), dtype=np.float32)
    at_least = _bound_of_best(scores, k)
    places = np.flatnonzero(scores >= at_least[:, None])
    rows, values = places // size, scores.ravel()[places]
    order = _best_first(rows, values, places % size)
    chosen = order[np.searchsorted(rows, np.arange(n_rows))[:, None] + np.arange(k)]
    return places[chosen] % size, values[chosen]


def _best_first(
    rows: NDArray[np.int64], values: NDArray[np.float32], columns: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return the order by row, then by value from the largest, then by column."""
    if max(rows[-1] // _MOST_ROWS, columns.max() >> 24):
        return np.lexsort((columns, -values, rows))
    # All three in one number of 7, 32 and 24 bits, since numbers are sorted fastest. The bits of a
    # float are a number that grows with it if it is positive, and falls if it is negative.
    bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # −0 becomes 0
    falling = np.where(bits < 0, bits & 0xFFFFFFFF, 0x7FFFFFFF - bits)
    return np.argsort((rows << 32 | falling) << 24 | columns)


def _bound_of_best(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return a number for each row that its k largest reach and few others.

    It is the k-th largest of the largest values of parts of the row: k values are no smaller.
    """
    n_rows, size = scores.shape
    n_parts = _PARTS * k
    depth = size // n_parts
    if depth > 1:
        parts = scores[:, : depth * n_parts].reshape(n_rows, depth, n_parts)
        scores, size = parts.max(axis=1), n_parts
    bound: NDArray[np.float32] = np.partition(scores, size - k, axis=1)[:, size - k]
    return bound


def _chunks(n_texts: int, n_labels: int) -> Iterator[slice]:
    size = max(1, min(_MOST_ROWS, CHUNK_CELLS // max(1, n_labels)))
    return (slice(start, min(n_texts, start + size)) for start in range(0, n_texts, size))
