"""Micro-averaged precision, recall and F1 of the labels at or above a threshold.

Computed from the top k, so it is exact only if fewer than k labels of a document reach the
threshold. Documents where all k do are counted as `saturated`: a larger k might change the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glocal.metrics.documents import DocumentScores
from glocal.metrics.ranking import Judged


@dataclass(frozen=True, eq=False)
class MicroScores:
    """Micro averages at a threshold.

    Attributes:
        threshold: The lowest score that counts.
        precision: Hits over predicted labels; 0 if none is predicted.
        recall: Hits over gold labels.
        f1: 2 · hits / (predicted + gold labels), as a score per document.
        saturated: Number of documents where all k slots reach the threshold.
    """

    threshold: float
    precision: float
    recall: float
    f1: DocumentScores
    saturated: int


def micro_scores(
    judged: Judged, scores: NDArray[np.float32], threshold: float, *, n_labels: int | None = None
) -> MicroScores:
    """Micro precision, recall and F1 of the predictions that reach a threshold.

    Args:
        judged: Predictions compared with gold.
        scores: Scores (n, k) of all documents, with or without gold.
        threshold: The lowest score that counts.
        n_labels: Size of the label space; a k this large cuts nothing off.
    """
    scores = judged.kept_scores(scores)
    given = (judged.indices >= 0) & (scores >= threshold)
    hits = (given & judged.hits).sum(axis=1).astype(np.float64)
    n_given, n_gold = given.sum(axis=1), judged.gold.sizes
    width = given.shape[1]
    complete = width == 0 or (n_labels is not None and width >= n_labels)
    return MicroScores(
        threshold=threshold,
        precision=float(hits.sum() / max(n_given.sum(), 1)),
        recall=float(hits.sum() / max(n_gold.sum(), 1)),
        f1=DocumentScores(2 * hits, (n_given + n_gold).astype(np.float64)),
        saturated=0 if complete else int(given.all(axis=1).sum()),
    )
