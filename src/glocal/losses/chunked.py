"""A loss over all labels, computed forward and backward one label chunk at a time.

No (documents, labels, width) tensor outlives its chunk: the forward pass of `chunked_loss` computes
each chunk's gradients at once and keeps only their sums over states and the rows of the label
tensors. To autograd it is one node, so data parallelism and gradient accumulation work as usual.
Where label tensors have a `RowUpdate`, it gets the gradient of each chunk's rows at once, and no
gradient of the whole tensor is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor | None]
ChunkLoss = Callable[[slice, Tensors, Tensors], Tensor]
RowUpdate = Callable[[slice, Tensor], None]
FP8 = torch.float8_e4m3fn


def label_chunks(n_labels: int, *, documents: int, width: int, limit: int) -> list[slice]:
    """Slices of the labels such that documents × labels × width stays within `limit`."""
    if not n_labels:  # a cluster of fewer labels than there are processes
        return []
    size = max(1, min(n_labels, limit // max(1, documents * width)))
    count = -(-n_labels // size)
    size = -(-n_labels // count)  # even chunks
    return [slice(i, min(i + size, n_labels)) for i in range(0, n_labels, size)]


def chunked_loss(
    loss: ChunkLoss,
    chunks: Sequence[slice],
    states: Tensors,
    label_tensors: Tensors,
    *,
    updates: Sequence[RowUpdate | None] = (),
) -> Tensor:
    """Σ over chunks of `loss(chunk, states, rows of the label tensors)`, differentiable.

    Args:
        loss: A pure function of its arguments.
        chunks: Slices that cover the labels.
        states: What does not depend on the label; may hold `None`.
        label_tensors: Tensors with the labels on their first axis.
        updates: One for each label tensor, called with a chunk and the gradient of its rows, before
            any factor that the result is multiplied by; `None` where autograd gets the gradient.
    """
    updates = tuple(updates) or (None,) * len(label_tensors)
    if len(chunks) == 1 and not any(updates):
        return loss(chunks[0], states, label_tensors)
    apply: Callable[..., Tensor] = _ChunkedLoss.apply
    return apply(loss, chunks, updates, len(states), *states, *label_tensors)


class _ChunkedLoss(torch.autograd.Function):
    """Gradients are computed in the forward pass and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: ChunkLoss,
        chunks: Sequence[slice],
        updates: Sequence[RowUpdate | None],
        n_states: int,
        *tensors: Tensor | None,
    ) -> Tensor:
        needed = ctx.needs_input_grad[4:]
        states = [_leaf(t, n) for t, n in zip(tensors[:n_states], needed, strict=False)]
        labels, label_needed = tensors[n_states:], needed[n_states:]
        sums = [
            torch.empty_like(t) if n and t is not None and update is None else None
            for t, n, update in zip(labels, label_needed, updates, strict=True)
        ]
        state_sums: list[Tensor | None] = [None] * n_states
        total = torch.zeros((), device=_device(tensors))
        for chunk in chunks:
            rows = [
                _leaf(widened(t[chunk]) if t is not None else None, n)
                for t, n in zip(labels, label_needed, strict=True)
            ]
            with torch.enable_grad():
                value = loss(chunk, states, rows)
            total += value.detach()
            wanted = [t for t in (*states, *rows) if t is not None and t.requires_grad]
            grads = iter(torch.autograd.grad(value, wanted, allow_unused=True) if wanted else ())
            for i, state in enumerate(states):
                if state is not None and state.requires_grad:
                    state_sums[i] = _add(state_sums[i], next(grads))
            for total_grad, row, update in zip(sums, rows, updates, strict=True):
                if row is not None and row.requires_grad:
                    grad = next(grads)
                    if total_grad is not None:
                        total_grad[chunk] = 0 if grad is None else grad
                    elif update is not None and grad is not None:
                        update(chunk, grad)
        dtypes = [None if t is None else t.dtype for t in tensors[:n_states]]
        ctx.grads = [
            None if g is None else g.to(d) for g, d in zip(state_sums, dtypes, strict=True)
        ] + sums
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        (grad,) = grad_outputs
        scaled = [None if g is None else g.mul_(grad.to(g.dtype)) for g in ctx.grads]
        ctx.grads = None
        return (None, None, None, None, *scaled)


def widened(rows: Tensor) -> Tensor:
    """Return rows in a type that can be calculated with: fp8 as bf16, which has all its values."""
    return rows.bfloat16() if rows.dtype == FP8 else rows


def _leaf(tensor: Tensor | None, needs_grad: bool) -> Tensor | None:
    return None if tensor is None else tensor.detach().requires_grad_(needs_grad)


def _add(total: Tensor | None, grad: Tensor | None) -> Tensor | None:
    """Accumulate in fp32: chunks are many and their states may be bf16."""
    if grad is None:
        return total
    return grad.float() if total is None else total.add_(grad)


def _device(tensors: Sequence[Tensor | None]) -> torch.device:
    return next(t.device for t in tensors if t is not None)
