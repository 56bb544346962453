"""P@k, nDCG@k, R@k, RP@k and F1@k, document by document.

An empty slot, and every slot beyond the predictions' width, is a miss. With g gold labels and h
hits among the first k predictions:

    P@k = h / k          R@k = h / g          RP@k = h / min(k, g)          F1@k = 2h / (k + g)
    nDCG@k = Σ_{hits at rank r ≤ k} 1/log2(r + 1)  /  Σ_{r ≤ min(k, g)} 1/log2(r + 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.metrics.documents import DocumentScores
from glocal.metrics.gold import Gold, hit_matrix, prepare_gold


@dataclass(frozen=True, eq=False)
class Judged:
    """Predictions compared with gold, for the documents that have gold.

    Attributes:
        indices: Predicted columns, int64 (m, k), -1 for an empty slot.
        hits: Which predictions are gold, bool (m, k).
        gold: The gold labels.
    """

    indices: NDArray[np.int64]
    hits: NDArray[np.bool_]
    gold: Gold

    def kept_scores(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Select from the scores (n, k) of all documents those of the documents with gold."""
        expected = (self.gold.n_documents, self.indices.shape[1])
        if scores.shape != expected:
            raise ValueError(f"scores must have the predictions' shape {expected}: {scores.shape}")
        return scores if self.gold.left_out == 0 else scores[self.gold.kept]


def judge(indices: NDArray[np.int64], gold: Any) -> Judged:
    """Compare predictions with gold once, for any number of metrics.

    Args:
        indices: Predicted columns of all documents (n, k), best first, -1 for an empty slot.
        gold: Sparse matrix (n, columns), or the result of `prepare_gold`.
    """
    gold = prepare_gold(gold)
    if len(indices) != gold.n_documents:
        raise ValueError(
            f"there are predictions for {len(indices)} documents and gold labels for "
            f"{gold.n_documents}"
        )
    kept = indices if gold.left_out == 0 else indices[gold.kept]
    return Judged(kept, hit_matrix(kept, gold.matrix), gold)


def precision_at_k(judged: Judged, k: int) -> DocumentScores:
    """Return the share of the first k predictions that is gold."""
    return DocumentScores.mean(_hits_within(judged, k) / k)


def recall_at_k(judged: Judged, k: int) -> DocumentScores:
    """Return the share of gold labels found among the first k predictions."""
    return DocumentScores.mean(_hits_within(judged, k) / judged.gold.sizes)


def r_precision_at_k(judged: Judged, k: int) -> DocumentScores:
    """Return R-precision cut at k: hits over the largest possible number of hits."""
    return DocumentScores.mean(_hits_within(judged, k) / np.minimum(judged.gold.sizes, k))


def f1_at_k(judged: Judged, k: int) -> DocumentScores:
    """Return the harmonic mean of the precision and the recall of the first k predictions."""
    return DocumentScores.mean(2 * _hits_within(judged, k) / (k + judged.gold.sizes))


def ndcg_at_k(judged: Judged, k: int) -> DocumentScores:
    """Return the discounted gain of the first k predictions over that of the ideal ranking."""
    hits = judged.hits[:, :k]
    gains = hits @ discounts(hits.shape[1])
    return DocumentScores.mean(gains / ideal_discounts(judged.gold.sizes, k))


def discounts(k: int) -> NDArray[np.float64]:
    """Return 1/log2(r + 1) for the ranks r = 1 … k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def ideal_discounts(sizes: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return the sum of discounts of the first min(k, g) ranks, for documents with g ≥ 1 labels."""
    return np.asarray(np.cumsum(discounts(k))[np.minimum(sizes, k) - 1])


def _hits_within(judged: Judged, k: int) -> NDArray[np.int64]:
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    return np.asarray(judged.hits[:, :k].sum(axis=1))
