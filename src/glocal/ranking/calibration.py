"""What turns a model's scores into probabilities that mean what they say.

`p → σ(low · ln p − high · ln(1 − p) + shift)`, beta calibration (Kull et al., 2017):
small and large probabilities are stretched by factors of their own. With `low = high = 1/T` and no
shift it is a temperature T. It keeps the order of labels. `predict/calibration.py` fits it on dev.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Calibration", "log_features"]

# Neighbouring float32 values must stay apart, and 0 and 1 have no finite logarithms.
_CLIP = (1e-30, 1.0 - 2.0**-25)


@dataclass(frozen=True)
class Calibration:
    """How scores are rescaled.

    Attributes:
        low: By how much small probabilities are stretched, above 0.
        high: By how much large ones are, above 0.
        shift: What is added to the log-odds.
    """

    low: float = 1.0
    high: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not (self.low > 0 and self.high > 0):
            raise ValueError(f"a calibration must stretch by more than 0, not {self}")

    def __call__(self, scores: NDArray[np.floating]) -> NDArray[np.float32]:
        """Rescale probabilities; what is not finite (empty slots) stays as it is.

        Scores that decrease along a row still do so afterwards: two that single precision would
        round to the same value are kept apart by its smallest step.
        """
        values = np.asarray(scores, dtype=np.float32)
        if self == Calibration():
            return values
        finite = np.isfinite(values)
        rise, fall = log_features(np.where(finite, values, 0.5), _CLIP)
        probabilities = _sigmoid(self.low * rise + self.high * fall + self.shift)
        scaled = np.maximum(probabilities, _CLIP[0]).astype(np.float32)
        _keep_apart(scaled, values)
        return np.where(finite, scaled, values)

    def to_mapping(self) -> dict[str, float]:
        """What is stored."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Calibration:
        """What was stored."""
        return cls(*(float(mapping[name]) for name in ("low", "high", "shift")))


def log_features(
    probabilities: NDArray[np.floating], clip: tuple[float, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ln p and −ln(1 − p)."""
    p = np.clip(np.asarray(probabilities, dtype=np.float64), *clip)
    return np.log(p), -np.log1p(-p)


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    small = np.exp(-np.abs(logits))  # never overflows, exact for small probabilities
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def _keep_apart(scaled: NDArray[np.float32], original: NDArray[np.float32]) -> None:
    """Lower, in place, each score that fell together with a higher one before it."""
    for place in range(1, scaled.shape[-1] if scaled.ndim else 0):
        before, here = scaled[..., place - 1], scaled[..., place]
        decreased = original[..., place] < original[..., place - 1]
        tied = original[..., place] == original[..., place - 1]
        limit = np.where(decreased, np.nextafter(before, np.float32(0)), before)
        scaled[..., place] = np.where(decreased | tied, np.minimum(here, limit), here)
