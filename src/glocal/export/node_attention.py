"""An encoder's attention as one node of a graph for ONNX Runtime.

Its `MultiHeadAttention` scales, masks and cuts into heads inside the product, where separate nodes
would be passes over (documents, heads, tokens, tokens) tensors and transpose what they read.
Attention of another kind stays as transformers writes it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    eager_mask,
)

NODE = "MultiHeadAttention"
_DOMAIN, _NAME, _PLAIN = "com.microsoft", "glocal_node", "eager"
# Arguments of attention functions that change nothing in prediction.
_HARMLESS = {"dropout", "output_attentions", "output_hidden_states", "is_causal", "use_cache"}


@torch.no_grad()
def attend_in_one_node(model: Any) -> None:
    """Have an encoder's attention traced as one node, if it is of that kind, which is tried."""
    called = False

    def attend(*args: Any, **options: Any) -> tuple[Tensor, None]:
        nonlocal called
        called = True
        return _attend(*args, **options)

    AttentionInterface.register(_NAME, attend)
    AttentionMaskInterface.register(_NAME, _mask)
    model.config._attn_implementation = _NAME
    tokens = torch.ones(1, 4, dtype=torch.int64)
    try:
        model(input_ids=tokens, attention_mask=tokens)
    except NotImplementedError:
        called = False
    AttentionInterface.register(_NAME, _attend)
    if not called:
        attend_plainly(model)


def attend_plainly(model: Any) -> None:
    """Have an encoder's attention traced with separate nodes.

    PyTorch's own attention would be written with checks for texts without a token.
    """
    model.config._attn_implementation = _PLAIN


def _mask(*, mask_function: Any, attention_mask: Tensor | None, **options: Any) -> Tensor | None:
    """Return the tokens to attend to, (B, T); or a bias (B, 1, T, T) where places matter."""
    if mask_function is bidirectional_mask_function:
        return attention_mask
    bias: Tensor = eager_mask(mask_function=mask_function, attention_mask=attention_mask, **options)
    return bias


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return `softmax(scale · q kᵀ + mask) v`, (B, T, heads, d)."""
    documents, heads, length, width = query.shape
    unknown = {name for name, given in options.items() if given is not None} - _HARMLESS
    if unknown or key.shape[1] != heads or value.shape[3] != width:
        raise NotImplementedError("attention of another kind")
    padding = bias = None
    if attention_mask is not None and attention_mask.dim() == 2:
        padding = attention_mask.to(torch.int32)
    else:
        bias = attention_mask
    found: Tensor = torch.onnx.ops.symbolic(
        f"{_DOMAIN}::{NODE}",
        (*(part.transpose(1, 2).flatten(2) for part in (query, key, value)), None, padding, bias),
        {"num_heads": heads, "scale": width**-0.5 if scaling is None else scaling},
        dtype=query.dtype,
        shape=(documents, length, heads * width),
        version=1,
    )
    return found.view(documents, length, heads, width), None
