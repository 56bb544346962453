"""Weights of the experts, learnt on held-out documents.

A logistic regression of "is gold" on the experts' log-odds and the frequency of the label, over the
labels any expert ranks high: `σ(Σ w_e z_e + c log max(m, 1) + b)`, m the label's training texts.

- w_e ≥ 0: an expert that adds nothing gets the weight 0;
- c has either sign: below 0 where the experts score rare labels too low;
- a handful of documents is no reason to leave equal weights and c = 0 by much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from glocal.ranking.combination import Combination
from glocal.ranking.pool import scores_at
from glocal.ranking.predictions import Predictions

__all__ = ["Pool", "fit_weights"]

_CLIP = (1e-7, 1.0 - 1e-7)
_PENALTY = 1e-4  # keeps the weights of two experts that agree in everything apart from infinity
_WEIGHT_PRIOR, _FREQUENCY_PRIOR = 5.0, 50.0  # as the log loss of so many labels


class Pool:
    """Log-odds of every expert at the pooled labels of held-out documents.

    Args:
        labels: (n, m) pooled labels, from `distinct_labels`.
        scored: Each expert's probabilities of them by its name, in any order.
        counts: (L,) training texts of every label; without them all labels count alike.
    """

    def __init__(
        self,
        labels: NDArray[np.int64],
        scored: Mapping[str, Predictions],
        counts: NDArray[np.int64] | None = None,
    ) -> None:
        self.labels, self.names = labels, list(scored)
        self.filled = labels >= 0
        columns = [_log_odds(scores_at(labels, alone)) for alone in scored.values()]
        self.log_odds = np.stack(columns, axis=-1)  # (n, m, experts)
        self.log_counts = np.zeros(labels.shape)  # (n, m)
        if counts is not None:
            self.log_counts += np.log(np.maximum(counts, 1))[np.maximum(labels, 0)]

    def hits(self, gold: Any) -> NDArray[np.bool_]:
        """Whether each pooled label is gold, (n, m)."""
        rows = np.repeat(np.arange(len(self.labels)), self.labels.shape[1])
        found = np.asarray(gold[rows, np.maximum(self.labels, 0).ravel()]).reshape(
            self.labels.shape
        )
        return np.asarray((found > 0) & self.filled)


def fit_weights(pool: Pool, gold: Any) -> Combination | None:
    """The weights, the frequency term and the bias with the smallest log loss.

    Args:
        pool: Of held-out documents.
        gold: Sparse (documents, columns ≥ labels); documents without gold are left out.

    Returns:
        `None` where nothing can be learnt: no pooled label is gold, or every one is.
    """
    rows = np.diff(gold.indptr) > 0
    used = pool.filled[rows]
    log_odds, log_counts = pool.log_odds[rows][used], pool.log_counts[rows][used]
    outcomes = pool.hits(gold)[rows][used].astype(np.float64)
    if not 0 < outcomes.sum() < len(outcomes):
        return None
    if not np.ptp(log_counts):
        log_counts = np.zeros_like(log_counts)  # all the same: left to the bias
    features = np.column_stack([log_odds, log_counts])  # (pairs, experts + 1)
    count = len(pool.names)
    start = np.append(np.full(count, 1.0 / count), [0.0, 0.0])
    prior = np.append(np.full(count, _WEIGHT_PRIOR), [_FREQUENCY_PRIOR, 0.0])

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = _log_loss(parameters, features, outcomes)
        away = (parameters - start) / len(outcomes)
        return value + (prior * away) @ (parameters - start), gradient + 2 * prior * away

    bounds = [(0.0, None)] * count + [(None, None)] * 2
    result = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    *weights, frequency, bias = map(float, result.x)
    if not any(weights):
        return None
    return Combination(dict(zip(pool.names, weights, strict=True)), bias, frequency)


def _log_loss(
    parameters: NDArray[np.float64], features: NDArray[np.float64], outcomes: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Mean log loss of slopes and a bias, the slopes' penalty added; its gradient."""
    slopes, bias = parameters[:-1], parameters[-1]
    total = features @ slopes + bias
    value = (np.logaddexp(0.0, total).sum() - outcomes @ total) / len(outcomes)
    error = (1.0 / (1.0 + np.exp(-total)) - outcomes) / len(outcomes)
    gradient = np.append(features.T @ error + 2 * _PENALTY * slopes, error.sum())
    return value + _PENALTY * slopes @ slopes, gradient


def _log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    p = np.clip(probabilities.astype(np.float64), *_CLIP)
    return np.asarray(np.log(p) - np.log1p(-p))
