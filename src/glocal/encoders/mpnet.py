"""MPNet's attention for training steps recorded as CUDA graphs, with the same results.

- transformers computes the buckets of relative positions on the CPU in every pass, which cannot be
  recorded. Here they are computed once, on the CPU whatever the device (a logarithm that rounds
  differently would change buckets), and move to the device with the model;
- the mask comes as for PyTorch's attention: transformers' other kind copies a number to the device;
- position bias and mask are merged once for all layers, and PyTorch's fused attention adds them
  to the scores, so that no (documents, heads, tokens, tokens) tensor of a layer is written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

from glocal.encoders.ragged_attention import three_products


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
        parts = three_products(hidden_states.flatten(0, 1), (self.q, self.k, self.v))
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)  # (B, heads, T, d)
        assert position_bias is not None
        bias = position_bias.to(query.dtype)
        rate = self.dropout.p if self.training else 0.0
        if not output_attentions:
            found = functional.scaled_dot_product_attention(
                query, key, value, bias.expand(documents, -1, -1, -1), dropout_p=rate
            )
            return (self.o(found.transpose(1, 2).flatten(2)),)
        scores = query @ key.transpose(2, 3) * self.attention_head_size**-0.5 + bias
        weights = functional.dropout(scores.softmax(-1), rate)
        return self.o((weights @ value).transpose(1, 2).flatten(2)), weights
