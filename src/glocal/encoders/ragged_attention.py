"""Attention over texts of different lengths without a mask, on a GPU.

A mask over padding makes PyTorch's attention a third slower. Here each row of a batch is two
sequences that do not see each other, the text and its padding, and flash attention is told where
they end. Queries, keys and values come from one product. Used in bf16 on CUDA for BERT and its kin;
anywhere else the modules are transformers' own, as are names and weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.encoders.lean_gradients import mix_in, runs_kernels, sum_tokens

_FAMILIES = ("Bert", "Roberta", "XLMRoberta", "Electra")
_WIDEST = 256  # of a head, for flash attention

_ENDS: ContextVar[Tensor | None] = ContextVar("ends of sequences", default=None)


def use_ragged_attention(model: nn.Module) -> bool:
    """Let the attention of a model work without a mask; return whether all of it can."""
    known = {f"{family}SelfAttention" for family in _FAMILIES}
    found: list[Any] = [m for m in model.modules() if type(m).__name__ in known]
    for module in found:
        mix_in(module, _RaggedAttention)
    layers = getattr(getattr(model, "config", None), "num_hidden_layers", 0)
    return 0 < len(found) == layers and all(
        m.attention_head_size <= _WIDEST and m.attention_head_size % 8 == 0 for m in found
    )


@contextlib.contextmanager
def without_mask(mask: Tensor) -> Iterator[None]:
    """Keep texts and padding apart by their ends while a model runs without a mask.

    Args:
        mask: (B, T), true for tokens; padding is on one side of each row.
    """
    token = _ENDS.set(sequence_ends(mask))
    try:
        yield
    finally:
        _ENDS.reset(token)


def sequence_ends(mask: Tensor) -> Tensor:
    """Return where each row's two sequences end among all tokens of a batch, after a zero."""
    rows, length = mask.shape
    tokens = mask.sum(1, dtype=torch.int32)
    first = torch.where(mask[:, 0], tokens, length - tokens)  # padding may be on the left
    starts = torch.arange(0, rows * length, length, dtype=torch.int32, device=mask.device)
    ends = torch.stack([starts + first, starts + length], 1).flatten()
    return functional.pad(ends, (1, 0))


class _RaggedAttention(nn.Module):
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    dropout: nn.Dropout
    attention_head_size: int

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Attend within each sequence: `softmax(q kᵀ / √d) v`."""
        ends = _ENDS.get()
        if ends is None:
            return super().forward(hidden_states, *args, **kwargs)
        length = hidden_states.shape[1]
        heads = (-1, self.query.out_features // self.attention_head_size, self.attention_head_size)
        layers = (self.query, self.key, self.value)
        parts = three_products(hidden_states.flatten(0, 1), layers)
        query, key, value = (part.view(heads) for part in parts)
        rate = self.dropout.p if self.training else 0.0
        found = _flash(query, key, value, ends, longest=length, rate=rate)
        return found.view(*hidden_states.shape[:2], -1), None


def three_products(states: Tensor, layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """Return what three linear layers make of the same states (N, H), as views of one product."""
    if not runs_kernels(states, layers[0].weight):
        return tuple(layer(states) for layer in layers)
    apply: Callable[..., tuple[Tensor, ...]] = _ThreeProducts.apply
    return apply(states, *(layer.weight for layer in layers), *(layer.bias for layer in layers))


def _flash(
    query: Tensor, key: Tensor, value: Tensor, ends: Tensor, *, longest: int, rate: float
) -> Tensor:
    attend: Callable[..., Any] = torch.ops.aten._flash_attention_forward
    found: Tensor = attend(query, key, value, ends, ends, longest, longest, rate, False, False)[0]
    return found


class _ThreeProducts(torch.autograd.Function):
    """Three linear layers of the same states in one product; gradients are summed in products."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[:3], parameters[3:]
        ctx.save_for_backward(states, *weights)
        found = functional.linear(states, torch.cat(weights), torch.cat(biases))
        return found.chunk(3, -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        states, *weights = ctx.saved_tensors
        grads = [grad.contiguous() for grad in grad_outputs]
        d_states = grads[0] @ weights[0]
        for grad, weight in zip(grads[1:], weights[1:], strict=True):
            d_states.addmm_(grad, weight)
        d_weights = [grad.T @ states for grad in grads]
        d_biases = [sum_tokens(grad)[0].to(states.dtype) for grad in grads]
        return d_states, *d_weights, *d_biases
