"""The canonical order of top-k lists: decreasing score, ties by label index, empty slots last.

An empty slot has index -1 and score -inf.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Scores = NDArray[np.float32]


def sort_topk(
    indices: NDArray[np.integer], scores: NDArray[np.floating], k: int | None = None
) -> tuple[Indices, Scores]:
    """Sort each row into the canonical order and keep its first k entries.

    Args:
        indices: Labels (n, m), -1 for an empty slot.
        scores: Scores (n, m); those of empty slots are ignored.
        k: Number of entries to keep; None for all.
    """
    labels = np.asarray(indices, dtype=np.int64)
    values = np.where(labels >= 0, scores, -np.inf).astype(np.float32)
    # A filled slot may score -inf, so emptiness is a separate sort key.
    order = np.lexsort((labels, -values, labels < 0))[:, :k]
    return np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)
