"""Propensity-scored metrics: a hit on a rare label counts for more (Jain et al., KDD 2016).

- a label with N_l of N training texts has weight q_l = 1 + C (N_l + B)^-A, C = (ln N - 1)(B + 1)^A;
- gold labels outside the label space have the weight of labels without a training text, and count
  as misses;
- PSP@k and PSnDCG@k are ratios of sums over documents: gained over best attainable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glocal.metrics.documents import DocumentScores
from glocal.metrics.gold import best_weights
from glocal.metrics.ranking import Judged, discounts, ideal_discounts


def inverse_propensity(
    counts: ArrayLike, n_train: int, *, a: float = 0.55, b: float = 1.5, n_columns: int = 0
) -> NDArray[np.float64]:
    """Return the weight q_l of each label.

    Args:
        counts: Number of training texts of each label in the label space.
        n_train: Number of training texts.
        a: A of the formula (0.5 for Wikipedia-500K, 0.6 for Amazon-670K, 0.55 elsewhere).
        b: B of the formula (0.4, 2.6 and 1.5 for the same).
        n_columns: Columns of the gold matrix; those beyond `counts` have no training text.
    """
    if n_train < 1:
        raise ValueError(f"n_train must be at least 1, not {n_train}")
    if b <= 0:
        raise ValueError(f"b must be above 0, not {b}")
    known = np.asarray(counts)
    padded = np.zeros(max(len(known), n_columns))
    padded[: len(known)] = known
    # C is negative for one or two texts, which would invert the weights; 0 makes them equal.
    c = max(np.log(n_train) - 1.0, 0.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * (padded + b) ** -a)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Judged predictions with label weights.

    Attributes:
        gains: Weight of each hit, float64 (m, k); 0 for a miss.
        best: Weights of each document's gold labels, largest first, float64 (m, depth).
        sizes: Number of gold labels of each document, int64 (m,).
    """

    gains: NDArray[np.float64]
    best: NDArray[np.float64]
    sizes: NDArray[np.int64]


def weigh(
    judged: Judged,
    weights: NDArray[np.float64],
    *,
    depth: int,
    best: NDArray[np.float64] | None = None,
) -> Weighted:
    """Weight every hit by its label.

    Args:
        judged: Predictions compared with gold.
        weights: Weight of each column of the gold matrix.
        depth: Largest k that will be used.
        best: `best_weights(judged.gold, weights, depth)`, if already computed.
    """
    if len(weights) < judged.gold.n_columns:
        raise ValueError(
            f"{len(weights)} label weights do not cover the {judged.gold.n_columns} gold columns; "
            f"give `n_columns` to `inverse_propensity`"
        )
    indices = judged.indices[:, :depth]
    gains = np.where(judged.hits[:, :depth], weights[indices], 0.0)
    best = best_weights(judged.gold, weights, depth) if best is None else best
    return Weighted(gains, best, judged.gold.sizes)


def psp_at_k(weighted: Weighted, k: int) -> DocumentScores:
    """Return the weight of the hits among the first k predictions over the best attainable."""
    _check_depth(weighted, k)
    return DocumentScores(
        weighted.gains[:, :k].sum(axis=1) / k, weighted.best[:, :k].sum(axis=1) / k
    )


def psndcg_at_k(weighted: Weighted, k: int) -> DocumentScores:
    """Return the discounted weight of the hits in the top k over the best attainable."""
    _check_depth(weighted, k)
    gains, best = weighted.gains[:, :k], weighted.best[:, :k]
    ideal = ideal_discounts(weighted.sizes, k)
    return DocumentScores(
        gains @ discounts(gains.shape[1]) / ideal, best @ discounts(best.shape[1]) / ideal
    )


def _check_depth(weighted: Weighted, k: int) -> None:
    depth = weighted.best.shape[1]
    if not 1 <= k <= depth:
        raise ValueError(f"k must be between 1 and the depth {depth} of `weigh`, not {k}")
