"""MPNet's attention for training steps recorded as CUDA graphs, with the same results.

- transformers computes the buckets of relative positions on the CPU in every pass, which cannot be
  recorded. Here they are computed once, on the CPU whatever the device (a logarithm that rounds
  differently would change buckets), and move to the device with the model;
- the mask comes as for PyTorch's attention: transformers' other kind copies a number to the device;
- position bias and mask are merged once for all layers, and they and the scale are part of the
  product of queries and keys, not passes over a (documents, heads, tokens, tokens) tensor each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention


def adapt_mpnet(model: Any) -> None:
    """Replace the attention of an MPNet model by this module's; weights keep their names."""
    encoder = model.encoder
    encoder.__class__ = _Encoder
    model.config._attn_implementation = "sdpa"  # a mask of truth values
    positions = torch.arange(model.config.max_position_embeddings)
    distances = positions[None, :] - positions[:, None]
    buckets = encoder.relative_position_bucket(distances)
    encoder.register_buffer("buckets", buckets, persistent=False)
    for layer in encoder.layer:
        layer.attention.attn.__class__ = _SelfAttention


class _Encoder(MPNetEncoder):
    buckets: Tensor  # (positions, positions)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = False,
        **_: Any,
    ) -> Any:
        """Run all layers on one bias, into which the mask is merged."""
        length = hidden_states.shape[1]
        bias: Tensor = self.relative_attention_bias(self.buckets[:length, :length])
        bias = bias.permute(2, 0, 1).unsqueeze(0)  # (1, heads, T, T)
        if attention_mask is not None:
            bias = bias.masked_fill(~attention_mask, torch.finfo(bias.dtype).min)
        states: list[Any] = [hidden_states]
        weights: list[Any] = []
        for layer in self.layer:
            hidden, *found = layer(states[-1], None, bias, output_attentions=output_attentions)
            states.append(hidden)
            weights += found
        attentions = tuple(weights) if output_attentions else None
        return BaseModelOutput(
            last_hidden_state=states[-1], hidden_states=tuple(states), attentions=attentions
        )


class _SelfAttention(MPNetSelfAttention):
    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
        **_: Any,
    ) -> tuple[Tensor, ...]:
        """Attend to all tokens: `softmax(q kᵀ / √d + bias + mask) v`."""
        documents, length, _width = hidden_states.shape
        shape = (documents, length, self.num_attention_heads, self.attention_head_size)
        query, key, value = (
            project(hidden_states).view(shape).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )  # (B, heads, T, d)
        bias = position_bias
        assert bias is not None
        scores = torch.baddbmm(
            bias.to(query.dtype).expand(documents, *bias.shape[1:]).flatten(0, 1),
            query.flatten(0, 1),
            key.transpose(2, 3).flatten(0, 1),
            alpha=self.attention_head_size**-0.5,
        )  # (B · heads, T, T)
        weights = functional.dropout(scores.softmax(-1), self.dropout.p, self.training)
        found = (weights @ value.flatten(0, 1)).view(documents, -1, length, shape[-1])
        out = self.o(found.transpose(1, 2).flatten(2))
        return (out, weights.view(documents, -1, length, length)) if output_attentions else (out,)
