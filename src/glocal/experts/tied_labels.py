"""Labels' texts as a part of label vectors, for document experts and label queries alike.

    e_j = P n_j + c_j δ_j        c_j = m_j / (m_j + worth)

- n_j is the vector of the label's text (name, description, parents), fixed, of length one; P is
  shared by all labels and learnt; δ_j is the label's own and starts at zero.
- The fewer the training texts m_j of a label, the less its own part counts: what a single text
  teaches is mostly that text. So P n_j learns to stand alone. If asked, own parts are also left out
  at random in training ("label dropout").
- A label without a training text has no own part. It is no part of the loss: never being positive,
  it would be pushed down. Its bias is the mean of the rarest labels'.
- P starts so that a text scores labels by the likeness of its tokens to those of their names.
- `start` gives label vectors P n_j to begin with and then lets them go.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LabelText", "TextTie", "tied_tensors"]

_STAND_INS = 1024  # label texts that stand in for documents when P is scaled
_SMALL = 0.02  # of a random P, as of label vectors without a text


@dataclass(frozen=True)
class LabelText:
    """What an expert needs to know of its labels' texts.

    Attributes:
        vectors: (L, N) the mean token of each label's text, of the layers the expert reads; zero
            where there is no text.
        counts: (L,) training texts of each label.
        tied: Whether the text stays a part of the label vectors.
        dropout: How often a label's own part is left out in training.
        worth: As many training texts of its own make a label's own part count half.
    """

    vectors: Tensor
    counts: Tensor
    tied: bool
    dropout: float = 0.0
    worth: float = 0.0

    @torch.no_grad()
    def join(
        self, weight: nn.Parameter, base: Tensor | None = None, *, spread: float = 1.0
    ) -> TextTie | None:
        """Start label vectors from their texts.

        Args:
            weight: (L, W) label vectors; tied, they become each label's own part, at zero.
            base: (W, N) how texts and documents are brought to width W, which P starts in the
                direction of; by default the identity where the widths are equal, else random.
            spread: The standard deviation of the first scores.

        Returns:
            The tie; None where label vectors only start there.
        """
        rows = self.directions().to(weight)
        start = self._projection(rows, weight.shape[1], base, spread)
        if self.tied:
            weight.zero_()
            return TextTie(rows, self.counts, start, dropout=self.dropout, worth=self.worth)
        named = rows.any(1, keepdim=True)
        weight.copy_(torch.where(named, rows @ start.T, weight))
        return None

    def directions(self) -> Tensor:
        """(L, N) text vectors less their mean, of length one; zero where there is no text."""
        named = self.vectors.any(1, keepdim=True)
        mean = self.vectors.sum(0) / named.sum().clamp(min=1)
        return functional.normalize((self.vectors - mean) * named, dim=1)

    def _projection(self, rows: Tensor, width: int, base: Tensor | None, spread: float) -> Tensor:
        size = rows.shape[1]
        if base is None and width != size:
            return torch.empty(width, size).normal_(0.0, _SMALL)
        base = torch.eye(size) if base is None else base.detach().clone()
        inputs = self.vectors[self.vectors.any(1)][:_STAND_INS].to(rows)
        scores = (inputs - inputs.mean(0)) @ base.T @ (base @ rows.T)  # (M, L)
        deviation = scores.std() if scores.numel() > 1 else scores.new_zeros(())
        # Without texts (a model whose weights are to be loaded) there is nothing to go by.
        return base * (spread / deviation) if deviation > 0 else base


class TextTie(nn.Module):
    """The shared part of label vectors.

    Args:
        rows: (L, N) n_j.
        counts: (L,) training texts of each label.
        start: (W, N) where P starts.
        dropout: How often a label's own part is left out in training.
        worth: As many training texts of its own make a label's own part count half.
    """

    rows: Tensor
    share: Tensor
    rarest: Tensor

    def __init__(
        self,
        rows: Tensor,
        counts: Tensor,
        start: Tensor,
        *,
        dropout: float = 0.0,
        worth: float = 0.0,
    ) -> None:
        super().__init__()
        self.project = nn.Parameter(start)
        self.dropout = dropout
        self.register_buffer("rows", rows)
        seen = counts > 0
        fewest = counts[seen].min() if seen.any() else 0
        own = torch.where(seen, counts / (counts + worth), 0.0).float()
        self.register_buffer("share", own, persistent=False)
        self.register_buffer("rarest", counts == fewest, persistent=False)
        self._kept: tuple[object, Tensor] | None = None

    def vectors(self, delta: Tensor) -> Tensor:
        """`P n_j + c_j δ_j`, (L, W), computed once for all batches of a prediction."""
        if self.training or torch.is_grad_enabled():
            return self._sum(delta)
        state = (self.project.data_ptr(), self.project._version, delta.data_ptr(), delta._version)
        if self._kept is None or self._kept[0] != state:
            self._kept = state, self._sum(delta)
        return self._kept[1]

    def _sum(self, delta: Tensor) -> Tensor:
        share, named = self.share, self.rows.any(1)
        # A label without a text has nothing but its own part.
        share = torch.where(named, share, (share > 0).to(share))
        if self.training and self.dropout:
            left_out = torch.rand(len(share), device=share.device) < self.dropout
            share = share.masked_fill(left_out & named, 0.0)
        return self.rows @ self.project.T + delta * share.unsqueeze(1)

    def biases(self, bias: Tensor) -> Tensor:
        """(L,) with the mean of the rarest labels' in place of those never trained."""
        rare = (bias.detach() * self.rarest).sum() / self.rarest.sum()
        return torch.where(self.share > 0, bias, rare)

    def train(self, mode: bool = True) -> TextTie:
        """Also forgets what was computed: replayed graphs change weights without a trace."""
        self._kept = None
        super().train(mode)
        return self


def tied_tensors(
    tie: TextTie | None, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Label vectors and biases, those of them that are there, as they score documents."""
    if tie is not None:
        assert weight is not None, "a tie is of label vectors"
        weight = tie.vectors(weight)
        bias = None if bias is None else tie.biases(bias)
    return tuple(tensor for tensor in (weight, bias) if tensor is not None)
