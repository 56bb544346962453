"""Calibration: rescales a model's scores so that they are probabilities a threshold can trust.

`p → σ(low · ln p − high · ln(1 − p) + shift)`, beta calibration (Kull et al., 2017): small and
large probabilities are stretched by factors of their own. With `low = high = 1/T` and no shift it
is a temperature T. The order of labels is kept.

It is fitted on held-out documents by the log loss over the best few labels of each: those are the
scores a threshold is compared with, and the many more labels far below would decide instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.log_odds import log_terms, sigmoid
from glocal.metrics.ranking import judge
from glocal.ranking.logistic import fit_logistic
from glocal.ranking.predictions import Predictions

__all__ = ["Calibration", "calibrate", "fit_calibration", "fit_calibration_to"]

# Neighbouring float32 values must stay apart, and 0 and 1 have no finite logarithms.
_CLIP = (1e-30, 1.0 - 2.0**-25)
_FIT_CLIP = (1e-4, 1.0 - 1e-4)  # no entry may outweigh the rest
_BOUNDS = (0.05, 20.0)
_PRIOR = 20.0  # pulls towards no change, as much as a handful of entries would


@dataclass(frozen=True)
class Calibration:
    """Rescales probabilities.

    Attributes:
        low: Factor that stretches small probabilities, above 0.
        high: Factor that stretches large probabilities, above 0.
        shift: Constant added to the log-odds.
    """

    low: float = 1.0
    high: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not (self.low > 0 and self.high > 0):
            raise ValueError(f"the factors of a calibration must be above 0: {self}")

    def __call__(self, scores: NDArray[np.floating]) -> NDArray[np.float32]:
        """Rescale probabilities; values that are not finite (empty slots) stay as they are.

        Scores that decrease along a row still do so afterwards: two that single precision would
        round to the same value are kept apart by its smallest step.
        """
        values = np.asarray(scores, dtype=np.float32)
        if self == Calibration():
            return values
        finite = np.isfinite(values)
        rise, fall = log_terms(np.where(finite, values, 0.5), _CLIP)
        probabilities = sigmoid(self.low * rise + self.high * fall + self.shift)
        scaled = np.maximum(probabilities, _CLIP[0]).astype(np.float32)
        _keep_apart(scaled, values)
        return np.where(finite, scaled, values)

    def to_mapping(self) -> dict[str, float]:
        """Return plain values for storage."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Calibration:
        """Read stored values."""
        return cls(*(float(mapping[name]) for name in ("low", "high", "shift")))


def calibrate(predictions: Predictions, calibration: Calibration) -> Predictions:
    """Return the predictions with calibrated scores; those of experts are left as they are."""
    return replace(predictions, scores=calibration(predictions.scores))


def fit_calibration(scores: NDArray[np.floating], hits: NDArray[np.bool_]) -> Calibration:
    """Fit a calibration to outcomes by the log loss.

    Args:
        scores: Probabilities of the best entries (n, k); entries that are not finite (empty
            slots) are skipped.
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
    features = np.column_stack([*log_terms(scores[finite], _FIT_CLIP), np.ones(len(outcomes))])
    bounds = [_BOUNDS, _BOUNDS, (None, None)]
    unchanged = np.array([1.0, 1.0, 0.0])
    return Calibration(
        *fit_logistic(features, outcomes, start=unchanged, prior=_PRIOR, bounds=bounds)
    )


def fit_calibration_to(predictions: Predictions, gold: Any, *, depth: int) -> Calibration:
    """Fit a calibration to predictions and gold; documents without gold are skipped.

    Args:
        predictions: Predictions for all documents, scored by probabilities.
        gold: Sparse (documents, columns ≥ labels).
        depth: Number of the best labels of each document to look at.
    """
    judged = judge(predictions.indices[:, :depth], gold)
    return fit_calibration(judged.kept_scores(predictions.scores[:, :depth]), judged.hits)


def _keep_apart(scaled: NDArray[np.float32], original: NDArray[np.float32]) -> None:
    """Lower, in place, each score that was rounded to the one before it."""
    for place in range(1, scaled.shape[-1] if scaled.ndim else 0):
        before, here = scaled[..., place - 1], scaled[..., place]
        decreased = original[..., place] < original[..., place - 1]
        tied = original[..., place] == original[..., place - 1]
        limit = np.where(decreased, np.nextafter(before, np.float32(0)), before)
        scaled[..., place] = np.where(decreased | tied, np.minimum(here, limit), here)
