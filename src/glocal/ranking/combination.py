"""Combination: how the experts' scores become one probability.

- without weights, the mean of the experts' probabilities (GlocalXML Eq. 7);
- with weights, a sum of their log-odds, a bias, and a term for the frequency of the label,
  `σ(Σ w_e z_e + c log max(m, 1) + b)` with m the label's training texts: a weak expert counts for
  less, rare labels that experts score too low are lifted (c < 0), and the result is calibrated.
  Labels without a training text have a constant of their own (`unseen_shift.py`).

The weights, c and b are learnt on held-out documents, by a logistic regression of "is gold" over
the labels that any expert ranks high: w_e ≥ 0, so an expert that adds nothing gets the weight 0,
and a handful of documents hardly moves them away from equal weights and c = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.log_odds import sigmoid

if TYPE_CHECKING:
    from torch import Tensor

    from glocal.ranking.pool import Pool

_LARGEST = 100.0  # a weight of 0 would turn infinite log-odds into NaN
_PENALTY = 1e-4  # keeps the weights finite where two experts always agree
_WEIGHT_PRIOR, _FREQUENCY_PRIOR = 5.0, 50.0  # each as the log loss of this many labels


@dataclass(frozen=True)
class Combination:
    """Combines the experts' log-odds into one probability.

    Attributes:
        weights: Weight of each expert by its name; without any, probabilities are averaged.
        bias: The constant term.
        frequency: Coefficient of log(training texts of the label); below 0 it favours rare labels.
            A label without a training text counts as one with a single text.
        unseen: Log-odds added to labels without a training text.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    bias: float = 0.0
    frequency: float = 0.0
    unseen: float = 0.0

    def __call__(self, names: Sequence[str], logits: Sequence[Tensor], counts: Tensor) -> Tensor:
        """Return the probabilities of labels.

        Args:
            names: The experts.
            logits: Each expert's logits, all of one shape (B, C).
            counts: Training texts of the same labels, (C,) or (B, C).
        """
        import torch

        if not self.weights:
            return torch.stack([torch.sigmoid(z.float()) for z in logits]).mean(0)
        total = torch.full_like(logits[0], self.bias, dtype=torch.float32)
        for name, z in zip(names, logits, strict=True):
            total = total + self.weights[name] * z.float().clamp(-_LARGEST, _LARGEST)
        if self.frequency:
            total = total + self.frequency * counts.float().clamp(min=1.0).log()
        if self.unseen:
            total = total + self.unseen * (counts == 0)
        return torch.sigmoid(total)

    def of_arrays(
        self, logits: Mapping[str, NDArray[np.floating]], counts: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Return the probabilities of labels, in numpy.

        Args:
            logits: Each expert's logits by its name, all of one shape (B, C).
            counts: Training texts of the same labels, (C,) or (B, C).
        """
        if not self.weights:
            every = np.stack([sigmoid(z) for z in logits.values()])
            return np.asarray(every.mean(axis=0), dtype=np.float32)
        total: Any = np.float32(self.bias)
        for name, z in logits.items():
            total = total + np.float32(self.weights[name]) * np.clip(z, -_LARGEST, _LARGEST)
        if self.frequency:
            frequent = np.log(np.maximum(counts, 1).astype(np.float32))
            total = total + np.float32(self.frequency) * frequent
        if self.unseen:
            total = total + np.float32(self.unseen) * (np.asarray(counts) == 0)
        return np.asarray(sigmoid(total), dtype=np.float32)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for storage."""
        own = {"unseen": self.unseen} if self.unseen else {}
        weights = dict(self.weights)
        return {"bias": self.bias, "frequency": self.frequency, **own, "weights": weights}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Combination:
        """Read stored values; older models have no frequency term."""
        weights = {str(name): float(weight) for name, weight in mapping["weights"].items()}
        frequency, unseen = (float(mapping.get(name, 0.0)) for name in ("frequency", "unseen"))
        return cls(weights, float(mapping["bias"]), frequency, unseen)


def fit_weights(pool: Pool, gold: Any) -> Combination | None:
    """Fit the weights, the frequency term and the bias by the log loss.

    Args:
        pool: Pooled labels of held-out documents.
        gold: Sparse (documents, columns ≥ labels); documents without gold are skipped.

    Returns:
        `None` where nothing can be learnt: no pooled label is gold, or every one is.
    """
    from glocal.ranking.logistic import fit_logistic

    rows = np.diff(gold.indptr) > 0
    used = pool.filled[rows]
    outcomes = pool.hits(gold)[rows][used].astype(np.float64)
    if not 0 < outcomes.sum() < len(outcomes):
        return None
    experts, log_counts = len(pool.names), pool.log_counts[rows][used]
    if not np.ptp(log_counts):
        log_counts = np.zeros_like(log_counts)  # all the same: left to the bias
    columns = [pool.log_odds[rows][used], log_counts, np.ones(len(outcomes))]
    *weights, frequency, bias = fit_logistic(
        np.column_stack(columns),  # (pairs, experts + 2)
        outcomes,
        start=np.array([1.0 / experts] * experts + [0.0, 0.0]),
        prior=[_WEIGHT_PRIOR] * experts + [_FREQUENCY_PRIOR, 0.0],
        bounds=[(0.0, None)] * experts + [(None, None)] * 2,
        penalty=[_PENALTY] * (experts + 1) + [0.0],
    )
    if not any(weights):
        return None
    return Combination(dict(zip(pool.names, weights, strict=True)), bias, frequency)
