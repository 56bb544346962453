"""Binary cross-entropy against sparse positives, summed over labels and documents.

`BCE = Σ softplus(z) − Σ_{positives} z`: no dense target is needed. Logits may be bf16; the loss is
computed in fp32.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

__all__ = ["bce_candidates", "bce_chunk"]


def bce_chunk(logits: Tensor, gold: Tensor, start: int) -> Tensor:
    """Return the loss of one chunk of labels.

    Args:
        logits: (B, C) logits of labels `start … start + C`.
        gold: (B, G) gold labels of each document, chunk or not; −1 is padding.
        start: First label of the chunk.
    """
    logits = logits.float()
    width = logits.shape[1]
    local = gold - start
    inside = (gold >= 0) & (local >= 0) & (local < width)  # a mask needs no device sync
    positive = logits.gather(1, local.clamp(0, width - 1)) * inside
    return functional.softplus(logits).sum() - positive.sum()


def bce_candidates(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted loss of candidate labels; all arguments are (B, C)."""
    logits = logits.float()
    return (weights * (functional.softplus(logits) - targets * logits)).sum()
