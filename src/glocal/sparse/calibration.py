"""Margins into probabilities: p = σ(slope · margin + shift), Platt's scaling.

Fitted on margins of texts that the scored label was not trained on; both numbers then go into
the weights and biases, so that a score is a log-odds and its parts still add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Margins", "fit_scaling"]

_STEPS = 50
# Pulls the slope softly towards a usual one: a handful of texts must not make it infinite.
_USUAL_SLOPE, _PULL = 4.0, 0.05


@dataclass(frozen=True)
class Margins:
    """Margins of (text, label) pairs, whether each is gold, and how many pairs it stands for."""

    values: NDArray[np.float64]
    gold: NDArray[np.bool_]
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls, margins: NDArray[np.float32], gold: Any, *, weights: NDArray[np.float64]
    ) -> Margins:
        """Flatten margins (texts, labels), gold labels (CSR) and weights (texts,)."""
        return cls(
            margins.ravel().astype(np.float64),
            (gold.toarray() > 0).ravel(),
            np.repeat(weights, margins.shape[1]),
        )

    @classmethod
    def join(cls, parts: Sequence[Margins]) -> Margins:
        """All pairs of several parts."""
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.gold for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )


def fit_scaling(margins: Margins) -> tuple[float, float]:
    """Find the slope and shift under which the gold is likeliest, by Newton's method.

    Returns:
        (slope, shift); the slope is positive.
    """
    slope, shift = _USUAL_SLOPE, 0.0
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(margins, slope, shift)
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        slope, shift = max(0.1, slope - float(step[0])), shift - float(step[1])
        if np.abs(step).max() < 1e-6:
            break
    return slope, shift


def _derivatives(
    margins: Margins, slope: float, shift: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    logits = np.clip(slope * margins.values + shift, -60, 60)
    probability = 1 / (1 + np.exp(-logits))
    error = margins.weights * (probability - margins.gold)
    spread = margins.weights * probability * (1 - probability)
    gradient = np.array(
        [error @ margins.values + _PULL * (slope - _USUAL_SLOPE), error.sum() + _PULL * shift]
    )
    crossed = spread @ margins.values
    hessian = np.array(
        [[spread @ margins.values**2 + _PULL, crossed], [crossed, spread.sum() + _PULL]]
    )
    return gradient, hessian
