"""TReaderXML's dual cooperative network: Reading (Eq. 3–15) and Interaction (Eq. 16–17).

- `SelfAttention` is the paper's MMHSA if causal, else its MHSA; its output goes through tanh, and
  padding on either side is masked exactly;
- `Reading` is one branch: up to two attentions with a residual around the first; text and teacher
  have separate branches;
- `DualNetwork` reads both, concatenates them (teacher first), lets every word attend to the teacher
  and the words before it, and pools the result into one vector per document.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.config.reader_configurations import Configuration


class SelfAttention(nn.Module):
    """Multi-head self-attention with tanh at its output (Eq. 3–13).

    Args:
        width: Width of the vectors; a multiple of `heads`.
        heads: Number of attention heads.
        causal: Whether a position attends only to itself and earlier ones (Eq. 8–9).
        silent: Whether the output is initialised to zero, for use inside a residual.
    """

    def __init__(self, width: int, heads: int, *, causal: bool, silent: bool = False) -> None:
        super().__init__()
        assert width % heads == 0, "the heads divide the width"
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(width, 3 * width, bias=False)  # queries, keys and values
        self.output = nn.Linear(width, width, bias=False)
        for weight in (*self.project.weight.chunk(3), self.output.weight):
            nn.init.xavier_uniform_(weight)
        if silent:
            nn.init.zeros_(self.output.weight)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Return new vectors for a sequence, (B, T, H); values at masked positions are arbitrary.

        Args:
            states: (B, T, H).
            mask: (B, T) bool, false at padding; None without padding.
        """
        query, key, value = (  # each (B, heads, T, H / heads)
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.project(states).chunk(3, dim=-1)
        )
        found = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if mask is None else self._allowed(mask),
            is_causal=self.causal and mask is None,
        )
        return torch.tanh(self.output(found.transpose(1, 2).flatten(2)))

    def _allowed(self, mask: Tensor) -> Tensor:
        """Return which positions (last axis) each may attend to, (B, 1, T, T) or (B, 1, 1, T)."""
        keys = mask[:, None, None, :]
        if not self.causal:  # a fully masked row attends to everything, as an empty softmax is NaN
            return keys | ~mask.any(1)[:, None, None, None]
        places = torch.arange(mask.shape[1], device=mask.device)
        before = places[:, None] > places
        itself = places[:, None] == places  # padding too, so that no softmax is empty
        return (keys & before) | itself


class Reading(nn.Module):
    """One branch: attention, residual, attention, as configured.

    Args:
        width: Width of the vectors.
        heads: Number of heads of each attention.
        configuration: The attentions to use.
        residuals: Whether attentions after the first have residuals too.
    """

    def __init__(
        self, width: int, heads: int, configuration: Configuration, *, residuals: bool = False
    ) -> None:
        super().__init__()
        self.added = [configuration.residual, residuals][: len(configuration.attentions)]
        self.attentions = nn.ModuleList(
            SelfAttention(width, heads, causal=kind == "masked", silent=residuals and added)
            for kind, added in zip(configuration.attentions, self.added, strict=True)
        )

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, H) → (B, T, H)."""
        for attention, added in zip(self.attentions, self.added, strict=True):
            read: Tensor = attention(states, mask)
            states = states + read if added else read  # Eq. 14–15
        return states


class DualNetwork(nn.Module):
    """Reads text and teacher in parallel, then together, into one document vector.

    Args:
        width: Width of the vectors of text and teacher.
        heads: Number of heads of each attention.
        configuration: The parts of the network.
        bottleneck: Output width (W_HB of Eq. 17).
        pooling: Mean over all positions (`all`), over the text (`text`), or half of each
            (`halves`).
        residual: Whether attentions without a residual in the paper get one too, initialised to
            zero: the network then starts as the mean of the words' vectors.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        configuration: Configuration,
        *,
        bottleneck: int,
        pooling: str = "all",
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.pooling, self.residual = pooling, residual
        self.text = Reading(width, heads, configuration, residuals=residual)
        self.teacher = None
        if configuration.teacher:
            self.teacher = Reading(width, heads, configuration, residuals=residual)
        self.interaction = SelfAttention(width, heads, causal=True, silent=residual)
        self.bottleneck = nn.Linear(width, bottleneck, bias=False)
        if residual and bottleneck == width:
            nn.init.eye_(self.bottleneck.weight)

    def forward(
        self,
        text: Tensor,
        mask: Tensor | None,
        teacher: Tensor | None = None,
        teacher_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the document vectors, (B, bottleneck).

        Args:
            text: (B, T, H).
            mask: (B, T) bool, false at padding; None without padding.
            teacher: (B, S, H), if the configuration has a teacher.
            teacher_mask: (B, S) bool.
        """
        states = self.text(text, mask)
        if self.teacher is not None:
            assert teacher is not None
            assert teacher_mask is not None
            taught = self.teacher(teacher, teacher_mask)
            states = torch.cat([taught.to(states.dtype), states], dim=1)  # Eq. 16
            if mask is None:
                mask = torch.ones(text.shape[:2], dtype=torch.bool, device=text.device)
            mask = torch.cat([teacher_mask, mask], dim=1)
        read = self.interaction(states, mask)
        states = states + read if self.residual else read
        # W_HB is linear, so pooling first gives the same result at less cost.
        taught_places = states.shape[1] - text.shape[1]
        vector: Tensor = self.bottleneck(self._pool(states, mask, taught_places))
        return vector

    def _pool(self, states: Tensor, mask: Tensor | None, taught: int) -> Tensor:
        """Pool into one vector per document; the first `taught` positions are the teacher's."""
        if self.pooling == "all" or not taught:
            return masked_mean(states, mask)
        assert mask is not None
        text = masked_mean(states[:, taught:], mask[:, taught:])
        if self.pooling == "text":
            return text
        teacher = masked_mean(states[:, :taught], mask[:, :taught])
        return torch.where(mask[:, :taught].any(1, keepdim=True), (teacher + text) / 2, text)


def masked_mean(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean over unmasked positions, (B, T, H) → (B, H); zero if all are masked."""
    if mask is None:
        return states.mean(1)
    weights = mask / mask.sum(1, keepdim=True).clamp(min=1)  # (B, T)
    return (weights.to(states.dtype).unsqueeze(1) @ states).squeeze(1)
