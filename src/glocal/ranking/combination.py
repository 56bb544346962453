"""How the experts' scores become one.

- the mean of their probabilities (GlocalXML Eq. 7), until weights are known;
- or a weighted sum of their log-odds, a bias, and a term for the frequency of the label,
  `σ(Σ w_e z_e + c log max(m, 1) + b)` with m the label's training texts: a weak expert counts for
  less, rare labels that experts score too low are lifted (c < 0), and the result is calibrated.
  `predict/combining.py` learns the weights, c and b on dev.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["Combination"]


@dataclass(frozen=True)
class Combination:
    """What the experts' word is worth.

    Attributes:
        weights: Of the experts, by name; none of them: the mean of the probabilities.
        bias: The constant term.
        frequency: What one unit of log(training texts of the label) adds; below 0 it favours the
            rare. A label without a training text counts as one with a single text.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    bias: float = 0.0
    frequency: float = 0.0

    def __call__(self, names: Sequence[str], logits: Sequence[Tensor], counts: Tensor) -> Tensor:
        """Probabilities of labels.

        Args:
            names: The experts.
            logits: Of each, all of one shape (B, C).
            counts: Training texts of the same labels, (C,) or (B, C).
        """
        if not self.weights:
            return torch.stack([torch.sigmoid(z.float()) for z in logits]).mean(0)
        total = torch.full_like(logits[0], self.bias, dtype=torch.float32)
        for name, z in zip(names, logits, strict=True):
            # In place of an infinite log-odds, which a weight of 0 would turn into NaN.
            total = total + self.weights[name] * z.float().clamp(-100.0, 100.0)
        if self.frequency:
            total = total + self.frequency * counts.float().clamp(min=1.0).log()
        return torch.sigmoid(total)

    def to_mapping(self) -> dict[str, Any]:
        """What is stored."""
        return {"bias": self.bias, "frequency": self.frequency, "weights": dict(self.weights)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Combination:
        """What was stored; models from before there was a frequency term have none."""
        weights = {str(name): float(weight) for name, weight in mapping["weights"].items()}
        return cls(weights, float(mapping["bias"]), float(mapping.get("frequency", 0.0)))
