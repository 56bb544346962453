"""Binary cross-entropy against sparse positives, summed over labels and documents.

`BCE = Σ softplus(z) − Σ_{positives} z`: no dense target is needed. Logits may be bf16; the loss is
computed in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def bce_chunk(logits: Tensor, gold: Tensor, start: int) -> Tensor:
    """Return the loss of one chunk of labels.

    Args:
        logits: (B, C) logits of labels `start … start + C`.
        gold: (B, G) gold labels of each document, chunk or not; −1 is padding.
        start: First label of the chunk.
    """
    width = logits.shape[1]
    local = gold - start
    inside = (gold >= 0) & (local >= 0) & (local < width)  # a mask needs no device sync
    apply: Callable[..., Tensor] = _SparseBCE.apply
    return apply(logits, local.clamp(0, width - 1), inside)


class _SparseBCE(torch.autograd.Function):
    """The gradient `σ(z) − y` in few passes; it has the memory layout of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, inside: Tensor) -> Tensor:
        ctx.save_for_backward(logits, gold, inside)
        exact = logits.float()
        positive = exact.gather(1, gold) * inside
        return functional.softplus(exact).sum() - positive.sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grad_outputs
        logits, gold, inside = ctx.saved_tensors
        slope = torch.sigmoid(logits.float())
        slope.scatter_add_(1, gold, -inside.to(slope.dtype))
        return slope.mul_(grad).to(logits.dtype), None, None


def bce_candidates(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted loss of candidate labels; all arguments are (B, C)."""
    logits = logits.float()
    return (weights * (functional.softplus(logits) - targets * logits)).sum()
