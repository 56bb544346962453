"""Temperature scaling of probabilities, so that a threshold means what it says.

A temperature T turns a probability p into σ(logit(p) / T). It is fitted on held-out documents by
the log loss over their top-k entries, and keeps the order of labels; T > 1 tempers over-confident
scores. Fitting on the top k alone is deliberate: those are the scores a threshold is held against.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.metrics.ranking import judge
from glocal.predict.predictions import Predictions

__all__ = ["apply_temperature", "calibrate", "fit_temperature", "fit_temperature_to"]

# Probabilities of 0 and 1 have no finite log-odds. When fitting, no entry may outweigh the rest;
# when applying, neighbouring float32 values must stay apart.
_FIT_CLIP = (1e-7, 1.0 - 1e-7)
_APPLY_CLIP = (1e-30, 1.0 - 2.0**-25)
_LOWEST, _HIGHEST = 0.05, 20.0


def fit_temperature(scores: NDArray[np.floating], hits: NDArray[np.bool_]) -> float:
    """The temperature with the smallest log loss.

    Args:
        scores: Probabilities of the top-k entries (n, k); entries that are not finite (empty
            slots) are left out.
        hits: Whether each entry is gold (n, k).

    Returns:
        A temperature between 0.05 and 20; 1 where nothing can be learnt: no entries, only hits,
        or no hit.
    """
    if scores.shape != hits.shape:
        raise ValueError(f"scores {scores.shape} and hits {hits.shape} must have one shape")
    finite = np.isfinite(scores)
    outcomes = np.asarray(hits)[finite]
    if not outcomes.any() or outcomes.all():
        return 1.0
    logits = _logits(scores[finite], _FIT_CLIP)
    # With s = 1/T the loss Σ softplus(s z) - y s z is convex in s: its slope has one zero.
    low, high = 1.0 / _HIGHEST, 1.0 / _LOWEST
    if _slope(low, logits, outcomes) >= 0:
        return _HIGHEST
    if _slope(high, logits, outcomes) <= 0:
        return _LOWEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        if _slope(middle, logits, outcomes) > 0:
            high = middle
        else:
            low = middle
    return float(2.0 / (low + high))


def fit_temperature_to(predictions: Predictions, gold: Any) -> float:
    """The temperature that fits predictions to gold best; documents without gold are left out.

    Args:
        predictions: Of all documents, scored by probabilities.
        gold: Sparse (documents, columns ≥ labels).
    """
    judged = judge(predictions.indices, gold)
    return fit_temperature(judged.kept_scores(predictions.scores), judged.hits)


def apply_temperature(scores: NDArray[np.floating], temperature: float) -> NDArray[np.float32]:
    """σ(logit(p) / T) of probabilities; what is not finite (empty slots) stays as it is.

    Scores that decrease along a row still do so afterwards: two that single precision would round
    to the same value are kept apart by its smallest step.
    """
    if not temperature > 0:
        raise ValueError(f"a temperature must be above 0, not {temperature}")
    values = np.asarray(scores, dtype=np.float32)
    if temperature == 1.0:
        return values
    finite = np.isfinite(values)
    logits = _logits(np.where(finite, values, 0.5), _APPLY_CLIP)
    scaled = np.maximum(_sigmoid(logits / temperature), _APPLY_CLIP[0]).astype(np.float32)
    _keep_apart(scaled, values)
    return np.where(finite, scaled, values)


def calibrate(predictions: Predictions, temperature: float) -> Predictions:
    """Predictions with their scores rescaled, the labels in the same order."""
    return Predictions(predictions.indices, apply_temperature(predictions.scores, temperature))


def _keep_apart(scaled: NDArray[np.float32], original: NDArray[np.float32]) -> None:
    """Lower, in place, each score that fell together with a higher one before it."""
    for place in range(1, scaled.shape[-1] if scaled.ndim else 0):
        before, here = scaled[..., place - 1], scaled[..., place]
        decreased = original[..., place] < original[..., place - 1]
        tied = original[..., place] == original[..., place - 1]
        limit = np.where(decreased, np.nextafter(before, np.float32(0)), before)
        scaled[..., place] = np.where(decreased | tied, np.minimum(here, limit), here)


def _logits(probabilities: NDArray[np.floating], clip: tuple[float, float]) -> NDArray[np.float64]:
    p = np.clip(np.asarray(probabilities, dtype=np.float64), *clip)
    return np.asarray(np.log(p) - np.log1p(-p))


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    small = np.exp(-np.abs(logits))  # never overflows, exact for small probabilities
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def _slope(scale: float, logits: NDArray[np.float64], outcomes: NDArray[np.bool_]) -> float:
    return float(logits @ (_sigmoid(scale * logits) - outcomes))
