"""ME-XML's distribution-aware diversity loss (Eq. 6–9), on logits and on gold labels only.

For an ordered pair of experts (j, k) and a gold label i:

    λ_i = (1 − max(p_j, p_k)) / n_i          without gradient; n_i: training texts of the label
    KL_i = p_j (z_j − z_k) + softplus(z_k) − softplus(z_j)
    loss = − mean over ordered pairs of Σ_i λ_i KL_i

λ is zero for other labels, so only gold labels are computed. The loss is summed over labels and
documents, as the BCE is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor
from torch.nn import functional


def bernoulli_kl(first: Tensor, second: Tensor) -> Tensor:
    """Return KL(σ(first) ‖ σ(second)) of Bernoulli distributions, from logits."""
    log_ratio = functional.softplus(second) - functional.softplus(first)
    return torch.sigmoid(first) * (first - second) + log_ratio


def diversity(logits: Sequence[Tensor], counts: Tensor, weights: Tensor) -> Tensor:
    """Return the loss over gold labels.

    Args:
        logits: One tensor per expert, all of the same shape.
        counts: Number of training texts of each label, same shape.
        weights: 1 for a gold label, 0 for padding.
    """
    logits = [z.float() for z in logits]
    total = logits[0].new_zeros(())
    pairs = list(permutations(range(len(logits)), 2))
    for j, k in pairs:
        top = torch.maximum(torch.sigmoid(logits[j]), torch.sigmoid(logits[k])).detach()
        scale = weights * (1.0 - top) / counts.clamp(min=1)
        total = total - (scale * bernoulli_kl(logits[j], logits[k])).sum()
    return total / max(1, len(pairs))
