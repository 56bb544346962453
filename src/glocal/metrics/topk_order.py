"""The canonical order of top-k lists: score downwards, exact ties by label index, empty slots last.

An empty slot has index -1 and score -inf.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["merge_topk", "sort_topk"]

Indices = NDArray[np.int64]
Scores = NDArray[np.float32]


def sort_topk(
    indices: NDArray[np.integer], scores: NDArray[np.floating], k: int | None = None
) -> tuple[Indices, Scores]:
    """Sort each row into the canonical order and keep its first k entries.

    Args:
        indices: Labels (n, m), -1 for an empty slot.
        scores: Their scores (n, m); those of empty slots are not looked at.
        k: Entries to keep; all of them when not given.
    """
    labels = np.asarray(indices, dtype=np.int64)
    values = np.where(labels >= 0, scores, -np.inf).astype(np.float32)
    # A filled slot may itself score -inf, so emptiness is a key of its own.
    order = np.lexsort((labels, -values, labels < 0), axis=-1)[:, :k]
    return np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)


def merge_topk(
    parts: Sequence[tuple[NDArray[np.integer], NDArray[np.floating]]], k: int
) -> tuple[Indices, Scores]:
    """Merge top-k lists of the same documents, such as those of label shards, into one.

    A label found in several lists keeps its highest score.

    Args:
        parts: One or more (indices, scores), each with one row per document.
        k: Width of the result; rows with fewer labels end in empty slots.
    """
    indices = np.concatenate([part[0] for part in parts], axis=1).astype(np.int64)
    scores = np.concatenate([part[1] for part in parts], axis=1).astype(np.float32)
    order = np.lexsort((-scores, indices), axis=-1)
    indices = np.take_along_axis(indices, order, axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    repeated = np.zeros(indices.shape, dtype=bool)
    repeated[:, 1:] = indices[:, 1:] == indices[:, :-1]
    indices, scores = sort_topk(np.where(repeated, -1, indices), scores, k)
    missing = ((0, 0), (0, max(0, k - indices.shape[1])))
    return (
        np.pad(indices, missing, constant_values=-1),
        np.pad(scores, missing, constant_values=-np.inf),
    )
