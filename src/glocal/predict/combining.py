"""Weights of the experts, learnt on held-out documents.

A logistic regression of "is gold" on the experts' log-odds, over the labels any of them ranks high:
`σ(Σ w_e z_e + b)` with w_e ≥ 0. An expert that adds nothing gets the weight 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from glocal.predict.pool import scores_at
from glocal.predict.predictions import Predictions

__all__ = ["Pool", "fit_weights"]

_CLIP = (1e-7, 1.0 - 1e-7)
_PENALTY = 1e-4  # keeps the weights of two experts that agree in everything apart from infinity


class Pool:
    """Log-odds of every expert at the pooled labels of held-out documents.

    Args:
        labels: (n, m) pooled labels, from `distinct_labels`.
        scored: Each expert's probabilities of them, in any order.
        names: Which experts.
    """

    def __init__(
        self,
        labels: NDArray[np.int64],
        scored: Mapping[str, Predictions],
        names: Sequence[str],
    ) -> None:
        self.labels, self.names = labels, list(names)
        self.filled = labels >= 0
        columns = [_log_odds(scores_at(labels, scored[name])) for name in names]
        self.log_odds = np.stack(columns, axis=-1)  # (n, m, experts)

    def hits(self, gold: Any) -> NDArray[np.bool_]:
        """Whether each pooled label is gold, (n, m)."""
        rows = np.repeat(np.arange(len(self.labels)), self.labels.shape[1])
        found = np.asarray(gold[rows, np.maximum(self.labels, 0).ravel()]).reshape(
            self.labels.shape
        )
        return np.asarray((found > 0) & self.filled)

    def combined(self, weights: Mapping[str, float], bias: float, k: int) -> Predictions:
        """The best k of the pooled labels under weights."""
        total = self.log_odds @ np.array([weights[name] for name in self.names]) + bias
        scores = 1.0 / (1.0 + np.exp(-total))
        return Predictions.from_unsorted(self.labels, scores.astype(np.float32), k)


def fit_weights(pool: Pool, gold: Any) -> tuple[dict[str, float], float] | None:
    """The weights and the bias with the smallest log loss.

    Args:
        pool: Of held-out documents.
        gold: Sparse (documents, columns ≥ labels); documents without gold are left out.

    Returns:
        `None` where nothing can be learnt: no pooled label is gold, or every one is.
    """
    rows = np.diff(gold.indptr) > 0
    used = pool.filled[rows]
    features = pool.log_odds[rows][used]  # (pairs, experts)
    outcomes = pool.hits(gold)[rows][used].astype(np.float64)
    if not 0 < outcomes.sum() < len(outcomes):
        return None

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, bias = parameters[:-1], parameters[-1]
        total = features @ weights + bias
        value = (np.logaddexp(0.0, total).sum() - outcomes @ total) / len(outcomes)
        error = (1.0 / (1.0 + np.exp(-total)) - outcomes) / len(outcomes)
        slope = np.append(features.T @ error + 2 * _PENALTY * weights, error.sum())
        return value + _PENALTY * weights @ weights, slope

    count = features.shape[1]
    start = np.append(np.full(count, 1.0 / count), 0.0)
    bounds = [(0.0, None)] * count + [(None, None)]
    result = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    weights = dict(zip(pool.names, map(float, result.x[:-1]), strict=True))
    return (weights, float(result.x[-1])) if any(weights.values()) else None


def _log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    p = np.clip(probabilities.astype(np.float64), *_CLIP)
    return np.asarray(np.log(p) - np.log1p(-p))
