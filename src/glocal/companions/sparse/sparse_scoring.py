"""Scores of texts from sparse weights, and the best labels.

The product of features and weights, both sparse, is made dense for a few texts at a time, never for
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.threads import ordered_map

CHUNK_CELLS = 4_000_000


@dataclass(frozen=True)
class LabelGroups:
    """Weights that the labels of a group share, added to each label's own.

    Args:
        weights: (F, G) float32 CSR matrix.
        of: (L,) int32, the group of each label, -1 for none.
    """

    weights: Any
    of: NDArray[np.int32]

    def scores(self, features: Any) -> NDArray[np.float32]:
        """Return what each text's groups add to the scores of all labels, (n, L)."""
        by_group = np.zeros((features.shape[0], self.weights.shape[1] + 1), np.float32)
        by_group[:, :-1] = (features @ self.weights).toarray()
        return by_group[:, self.of]  # -1 is the column of zeros


@dataclass(frozen=True)
class LinearScorer:
    """One linear function of the features for each label.

    Args:
        weights: (F, L) float32 CSR matrix.
        biases: (L,) float32.
        groups: Shared weights of similar labels; None without.
    """

    weights: Any
    biases: NDArray[np.float32]
    groups: LabelGroups | None = None

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.biases)

    def scores(self, features: Any) -> NDArray[np.float32]:
        """Return the scores (n, L) of the texts of a CSR matrix; meant for a few texts."""
        scores: NDArray[np.float32] = (features @ self.weights).toarray()
        scores += self.biases
        if self.groups is not None:
            scores += self.groups.scores(features)
        return scores

    def label_weights(self, label: int) -> NDArray[np.float32]:
        """Return all weights of one label, (F,)."""
        weights: NDArray[np.float32] = self.weights[:, [label]].toarray().ravel()
        if self.groups is not None and self.groups.of[label] >= 0:
            weights += self.groups.weights[:, [self.groups.of[label]]].toarray().ravel()
        return weights


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
    for rows, (found, values) in zip(
        chunks, ordered_map(best, chunks, threads=threads), strict=True
    ):
        indices[rows, :width] = np.where(np.isneginf(values), -1, found)
        scores[rows, :width] = values
    return indices, scores


def _top(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the k largest of each row; ties are broken by column, also at the k-th place."""
    n_labels = scores.shape[1]
    if k < n_labels:
        edge = np.partition(scores, n_labels - k, axis=1)[:, n_labels - k, None]
        above = scores > edge
        level = scores == edge
        room = k - above.sum(axis=1, keepdims=True)
        chosen = above | (level & (np.cumsum(level, axis=1) <= room))
        columns = np.nonzero(chosen)[1].reshape(len(scores), k)
    else:
        columns = np.broadcast_to(np.arange(n_labels), scores.shape)
    values = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1), np.take_along_axis(values, order, axis=1)


def _chunks(n_texts: int, n_labels: int) -> Iterator[slice]:
    size = max(1, min(256, CHUNK_CELLS // max(1, n_labels)))
    return (slice(start, min(n_texts, start + size)) for start in range(0, n_texts, size))


def _rows_of(allowed: NDArray[np.bool_], rows: slice) -> NDArray[np.bool_]:
    return allowed[rows] if allowed.ndim == 2 else allowed
