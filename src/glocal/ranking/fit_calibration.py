"""Fitting a calibration on held-out documents, so that a threshold means what it says.

The log loss over the best few labels of each document decides: those are the scores a threshold is
held against, and labels far below them, of which there are many more, would decide instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from glocal.metrics.ranking import judge
from glocal.ranking.calibration import Calibration, log_features
from glocal.ranking.predictions import Predictions

__all__ = ["calibrate", "fit_calibration", "fit_calibration_to"]

_CLIP = (1e-4, 1.0 - 1e-4)  # no entry may outweigh the rest
_BOUNDS = (0.05, 20.0)
_PRIOR = 20.0  # pulls towards no change, as much as a handful of entries would


def fit_calibration(scores: NDArray[np.floating], hits: NDArray[np.bool_]) -> Calibration:
    """The calibration with the smallest log loss.

    Args:
        scores: Probabilities of the best entries (n, k); entries that are not finite (empty
            slots) are left out.
        hits: Whether each entry is gold (n, k).

    Returns:
        One that changes nothing where nothing can be learnt: no entries, only hits, or no hit.
    """
    if scores.shape != hits.shape:
        raise ValueError(f"scores {scores.shape} and hits {hits.shape} must have one shape")
    finite = np.isfinite(scores)
    outcomes = np.asarray(hits)[finite].astype(np.float64)
    if not 0 < outcomes.sum() < len(outcomes):
        return Calibration()
    features = np.column_stack([*log_features(scores[finite], _CLIP), np.ones(len(outcomes))])
    unchanged = np.array([1.0, 1.0, 0.0])

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = features @ parameters
        away = parameters - unchanged
        value = np.logaddexp(0.0, logits).sum() - outcomes @ logits + _PRIOR * away @ away
        error = 1.0 / (1.0 + np.exp(-logits)) - outcomes
        return value / len(outcomes), (features.T @ error + 2 * _PRIOR * away) / len(outcomes)

    found = minimize(
        loss, unchanged, jac=True, bounds=[_BOUNDS, _BOUNDS, (None, None)], method="L-BFGS-B"
    )
    return Calibration(*map(float, found.x))


def fit_calibration_to(predictions: Predictions, gold: Any, *, depth: int) -> Calibration:
    """The calibration that fits predictions to gold best; documents without gold are left out.

    Args:
        predictions: Of all documents, scored by probabilities.
        gold: Sparse (documents, columns ≥ labels).
        depth: How many of the best labels of each document to look at.
    """
    judged = judge(predictions.indices[:, :depth], gold)
    return fit_calibration(judged.kept_scores(predictions.scores[:, :depth]), judged.hits)


def calibrate(predictions: Predictions, calibration: Calibration) -> Predictions:
    """Return the predictions with calibrated scores; those of experts are left as they are."""
    return replace(predictions, scores=calibration(predictions.scores))
