"""How the experts' scores become one.

- the mean of their probabilities (GlocalXML Eq. 7), until weights are known;
- or a weighted sum of their log-odds and a bias, `σ(Σ w_e z_e + b)`: a weak expert counts for less,
  and the result is calibrated. `predict/combining.py` learns the weights on dev.
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
    """Weights of the experts by name; none of them: the mean of the probabilities."""

    weights: Mapping[str, float] = field(default_factory=dict)
    bias: float = 0.0

    def __call__(self, names: Sequence[str], logits: Sequence[Tensor]) -> Tensor:
        """Probabilities from the experts' logits, all of one shape."""
        if not self.weights:
            return torch.stack([torch.sigmoid(z.float()) for z in logits]).mean(0)
        total = torch.full_like(logits[0], self.bias, dtype=torch.float32)
        for name, z in zip(names, logits, strict=True):
            # In place of an infinite log-odds, which a weight of 0 would turn into NaN.
            total = total + self.weights[name] * z.float().clamp(-100.0, 100.0)
        return torch.sigmoid(total)

    def to_mapping(self) -> dict[str, Any]:
        """What is stored."""
        return {"bias": self.bias, "weights": dict(self.weights)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Combination:
        """What was stored."""
        weights = {str(name): float(weight) for name, weight in mapping["weights"].items()}
        return cls(weights, float(mapping["bias"]))
