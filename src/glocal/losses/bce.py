"""Binary cross-entropy against sparse positives, summed over labels and documents.

`BCE = Σ softplus(z) − Σ_{positives} t z`: no dense target is needed. The target t of a positive is
1, or any probability (soft targets). Logits may be bf16; the loss is computed in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def bce_chunk(logits: Tensor, gold: Tensor, start: int, *, targets: Tensor | None = None) -> Tensor:
    """Return the loss of one chunk of labels.

    Args:
        logits: (B, C) logits of labels `start … start + C`.
        gold: (B, G) gold labels of each document, chunk or not; −1 is padding.
        start: First label of the chunk.
        targets: (B, G) the target of each gold label, from 0 to 1; by default 1.
    """
    width = logits.shape[1]
    local = gold - start
    inside = (gold >= 0) & (local >= 0) & (local < width)  # a mask needs no device sync
    apply: Callable[..., Tensor] = _SparseBCE.apply
    return apply(logits, local.clamp(0, width - 1), inside if targets is None else inside * targets)


class _SparseBCE(torch.autograd.Function):
    """The gradient `σ(z) − t` in few passes; it has the memory layout of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, targets: Tensor) -> Tensor:
        ctx.save_for_backward(logits, gold, targets)
        exact = logits.float()
        positive = exact.gather(1, gold) * targets
        return functional.softplus(exact).sum() - positive.sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grad_outputs
        logits, gold, targets = ctx.saved_tensors
        slope = torch.sigmoid(logits.float())
        slope.scatter_add_(1, gold, -targets.to(slope.dtype))
        return slope.mul_(grad).to(logits.dtype), None, None


def bce_candidates(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted loss of candidate labels; all arguments are (B, C)."""
    logits = logits.float()
    return (weights * (functional.softplus(logits) - targets * logits)).sum()
