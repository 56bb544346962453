"""Calibration: rescales a model's scores so that they are probabilities a threshold can trust.

A rising curve of log-odds (`calibration_curve.py`), fitted on held-out documents: on the best
labels of each of them, and on all other labels of a sample. So probabilities are right over the
whole range, and those of all labels sum to the number of gold labels. The order of labels is kept.

Models of format 2 have beta calibration (Kull et al., 2017), fitted on the best labels alone:
`p → σ(low · ln p − high · ln(1 − p) + shift)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats, Floats32
from glocal.log_odds import log_odds, log_terms, sigmoid
from glocal.ranking.calibration_curve import CalibrationCurve, fit_curve, summed_pairs
from glocal.ranking.predictions import Predictions

# Neighbouring float32 values must stay apart, and 0 and 1 have no finite logarithms.
_CLIP = (1e-30, 1.0 - 2.0**-25)
_BANDS = 8  # bands of ranks, in each unit of their logarithm


@dataclass(frozen=True)
class Calibration:
    """Rescales probabilities.

    Attributes:
        low: Factor that stretches small probabilities, above 0.
        high: Factor that stretches large probabilities, above 0.
        shift: Constant added to the log-odds.
        curve: Maps log-odds to calibrated log-odds; it replaces the other three.
    """

    low: float = 1.0
    high: float = 1.0
    shift: float = 0.0
    curve: CalibrationCurve | None = None

    def __post_init__(self) -> None:
        if not (self.low > 0 and self.high > 0):
            raise ValueError(f"the factors of a calibration must be above 0: {self}")

    def __call__(
        self, scores: NDArray[np.floating], *, added: NDArray[np.bool_] | None = None
    ) -> Floats32:
        """Rescale probabilities; values that are not finite (empty slots) stay as they are.

        Scores that decrease along a row still do so afterwards: two that single precision would
        round to the same value are kept apart by its smallest step.

        Args:
            scores: Probabilities, the best of each document first.
            added: Marks labels added after the training, on which the calibration was fitted. They
                take the ranks that they would have alone among the others, whose probabilities are
                the same without them.
        """
        values = np.asarray(scores, dtype=np.float32)
        if self == Calibration():
            return values
        finite = np.isfinite(values)
        rise, fall = log_terms(np.where(finite, values, 0.5), _CLIP)
        if self.curve is None:
            odds = self.low * rise + self.high * fall + self.shift
        else:
            ranks = np.arange(1.0, values.shape[-1] + 1)
            if added is not None:
                ranks = np.cumsum(~added, axis=-1, dtype=np.float64) + added
            odds = self.curve(rise + fall, ranks)
        scaled = np.maximum(sigmoid(odds), _CLIP[0]).astype(np.float32)
        loose = ~finite if added is None else added | ~finite
        _keep_apart(scaled, values, loose)
        if added is not None:
            _fit_in(scaled, loose)
        return np.where(finite, scaled, values)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for storage."""
        if self.curve is not None:
            return self.curve.to_mapping()
        return {"low": self.low, "high": self.high, "shift": self.shift}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Calibration:
        """Read stored values."""
        if "knots" in mapping:
            return cls(curve=CalibrationCurve.from_mapping(mapping))
        low, high, shift = (float(mapping[name]) for name in ("low", "high", "shift"))
        return cls(low, high, shift)


def calibrate(predictions: Predictions, calibration: Calibration) -> Predictions:
    """Return the predictions with calibrated scores; those of experts are left as they are.

    Labels added later do not change the probabilities of others.
    """
    labels, added = predictions.labels, None
    if labels is not None and labels.n_added:
        added = predictions.indices >= len(labels) - labels.n_added
    return replace(predictions, scores=calibration(predictions.scores, added=added))


class CalibrationPairs:
    """Collects (document, label) pairs of held-out documents and fits a calibration to them."""

    def __init__(self) -> None:
        self.parts: list[Floats] = []  # (4, n): log-odds, gold, weight, rank

    def add(
        self, predictions: Predictions, gold: Any, *, skip: int = 0, weight: float = 1.0
    ) -> None:
        """Add the predictions of documents; documents without gold are skipped.

        Args:
            predictions: Predictions scored by probabilities that are not calibrated yet.
            gold: Sparse (documents, columns ≥ labels).
            skip: Number of the best labels of each document to leave out.
            weight: Number of documents each of these documents represents.
        """
        from glocal.metrics.ranking import judge

        judged = judge(predictions.indices[:, skip:], gold)
        scores = judged.kept_scores(predictions.scores[:, skip:])
        filled = judged.indices >= 0
        ranks = np.broadcast_to(np.arange(skip, skip + filled.shape[1]) + 1.0, filled.shape)[filled]
        odds = log_odds(scores[filled], _CLIP)
        hits = judged.hits[filled].astype(np.float64)
        # Pairs of nearly equal rank and log-odds are summed up: there may be millions.
        for band in np.unique(bands := np.round(_BANDS * np.log(ranks))):
            inside = bands == band
            summed = summed_pairs(
                odds[inside], hits[inside] * weight, np.full(np.count_nonzero(inside), weight)
            )
            self.parts.append(np.stack([*summed, np.full(len(summed[0]), np.exp(band / _BANDS))]))

    def fit(self) -> Calibration:
        """Return the calibration that fits best; one that changes nothing if nothing is known."""
        odds, gold, weights, ranks = np.concatenate([np.empty((4, 0)), *self.parts], axis=1)
        return Calibration(curve=fit_curve(odds, gold / weights, weights, ranks))


def _keep_apart(scaled: Floats32, original: Floats32, ignored: NDArray[np.bool_]) -> None:
    """Lower, in place, each score that was rounded to the one before it, or above it.

    Args:
        scaled: (…, k) scores to change.
        original: (…, k) scores before they were rescaled, falling along each row.
        ignored: (…, k) marks places that neither change nor count.
    """
    if not scaled.ndim:
        return
    last: Any = np.float32(np.inf)  # the score before
    last_original = last
    for place in range(scaled.shape[-1]):
        here, own, skip = scaled[..., place], original[..., place], ignored[..., place]
        limit = np.where(own < last_original, np.nextafter(last, np.float32(0)), last)
        lowered = np.where(own <= last_original, np.minimum(here, limit), here)
        scaled[..., place] = np.where(skip, here, lowered)
        last = np.where(skip, last, scaled[..., place])
        last_original = np.where(skip, last_original, own)


def _fit_in(scaled: Floats32, loose: NDArray[np.bool_]) -> None:
    """Bring, in place, each loose place's score between those of the places that are not."""
    width = scaled.shape[-1]
    below: Any = np.float32(0)
    lowest = np.empty_like(scaled)
    for place in reversed(range(width)):
        lowest[..., place] = below
        below = np.where(loose[..., place], below, scaled[..., place])
    above: Any = np.float32(np.inf)
    for place in range(width):
        own = np.minimum(np.maximum(scaled[..., place], lowest[..., place]), above)
        scaled[..., place] = np.where(loose[..., place], own, scaled[..., place])
        above = scaled[..., place]
