"""Label attention with its own backward pass, for training on a CPU.

    z_bj = w2 · relu(Σ_i α_bij v_bi),  α_bj = softmax_i(scale · q_j · k_bi)

PyTorch's attention does not keep the weights α and multiplies queries and keys again backward. Here
a chunk's weights are kept, (documents, labels, tokens), so that one matrix product of seven is
saved, and two observations save passes over (documents, labels, width) tensors, as in the kernel
for GPUs (`label_attention_kernel`): the gradient before the ReLU is the output vector times a sign,
and `Σ_i α dα` is `dz · z`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def suits(query: Tensor, keys: Tensor) -> bool:
    """Return whether queries (C, d) of all documents meet keys on a CPU, without rounding."""
    exact = keys.dtype.itemsize >= 4 and not torch.is_autocast_enabled("cpu")
    return exact and keys.device.type == "cpu" and query.dim() == 2


def label_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    output: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
) -> Tensor:
    """Return the logits (B, C) of labels, without their biases.

    Args:
        query: (C, d).
        keys: (B, T, d).
        values: (B, T, h).
        output: (h,).
        mask: (B, T), true for tokens; None if all are.
        scale: Factor of the scores before the softmax.
    """
    apply: Callable[..., Tensor] = _LabelAttention.apply
    return apply(mask, query * scale, keys, values, output)


class _LabelAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mask: Tensor | None, *tensors: Tensor) -> Tensor:
        query, keys, values, output = tensors
        documents, tokens, _ = keys.shape
        scores = (query @ keys.flatten(0, 1).T).view(-1, documents, tokens)  # (C, B, T)
        if mask is not None:
            scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).transpose(0, 1)  # (B, C, T)
        found = (weights @ values).clamp_(min=0)  # (B, C, h)
        logits = found @ output
        ctx.save_for_backward(*tensors, weights, found, logits)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, output, weights, found, logits = ctx.saved_tensors
        d_output = grad.flatten() @ found.flatten(0, 1)
        on = found.sign_()  # a second backward pass is refused by autograd
        weights = weights * grad.unsqueeze(-1)  # (B, C, T)
        d_values = (weights.transpose(1, 2) @ on) * output
        d_scores = on @ (values * output).transpose(1, 2)
        d_scores.sub_(logits.unsqueeze(-1)).mul_(weights)  # (B, C, T)
        flat = d_scores.transpose(0, 1).flatten(1)  # (C, B · T)
        d_keys = (flat.T @ query).view_as(keys)
        return None, flat @ keys.flatten(0, 1), d_keys, d_values, d_output
