"""Label vectors that include the label's text, for document experts and label queries.

    e_j = P n_j + c_j δ_j        c_j = m_j / (m_j + worth)

- n_j is the fixed unit vector of the label's text (name, description, parents); the projection P is
  shared by all labels and learnt; δ_j belongs to one label and starts at zero.
- The fewer training texts m_j a label has, the less δ_j counts, since a single text teaches little
  beyond itself. P n_j therefore learns to work without δ_j. Optionally, δ_j is also dropped at
  random in training ("label dropout").
- A label without a training text has no δ_j and no loss: as it is never positive, training would
  only push it down. Its bias is the mean bias of the rarest labels, and after training every such
  label is levelled: its mean score over training texts becomes that of the rarest labels. Texts
  are like some names more than like others whatever they are about.
- P is initialised so that a text scores labels by the similarity of its tokens to their names.
- `start` only initialises label vectors at P n_j; training then moves them freely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice

_STAND_INS = 1024  # label texts used in place of documents to scale P
_SMALL = 0.02  # standard deviation of a random P, as of label vectors without a text


@dataclass(frozen=True)
class LabelText:
    """Vectors of the labels' texts and how an expert uses them.

    Attributes:
        vectors: (L, N) mean token of each label's text in the layers the expert reads; zero for a
            label without a text.
        counts: (L,) number of training texts of each label.
        tied: Whether the text stays part of the label vectors during training.
        dropout: Probability of dropping δ_j in training.
        worth: Number of training texts at which δ_j counts half.
        here: The labels that this process has.
    """

    vectors: Tensor
    counts: Tensor
    tied: bool
    dropout: float = 0.0
    worth: float = 0.0
    here: LabelSlice = EVERY_LABEL

    @torch.no_grad()
    def join(
        self, weight: nn.Parameter, base: Tensor | None = None, *, spread: float = 1.0
    ) -> TextTie | None:
        """Initialise label vectors from their texts.

        Args:
            weight: (n, W) label vectors of this process; when tied, they become δ and are set to
                zero.
            base: (W, N) initial direction of P; by default the identity if the widths are equal,
                else random.
            spread: Standard deviation of the initial scores.

        Returns:
            The tie, or None if the texts only initialise the label vectors.
        """
        rows = self.directions().to(weight)
        start = self._projection(rows, weight.shape[1], base, spread)
        own = slice(*self.here.bounds(len(rows)))
        if self.tied:
            weight.zero_()
            return TextTie(
                rows[own], self.counts, start,
                dropout=self.dropout, worth=self.worth, labels=self.here,
            )  # fmt: skip
        rows = rows[own]
        named = rows.any(1, keepdim=True)
        weight.copy_(torch.where(named, rows @ start.T, weight))
        return None

    def directions(self) -> Tensor:
        """Return centred unit text vectors, (L, N); zero for a label without a text."""
        named = self.vectors.any(1, keepdim=True)
        mean = self.vectors.sum(0) / named.sum().clamp(min=1)
        return functional.normalize((self.vectors - mean) * named)

    def _projection(self, rows: Tensor, width: int, base: Tensor | None, spread: float) -> Tensor:
        size = rows.shape[1]
        if base is None and width != size:
            return torch.empty(width, size).normal_(0.0, _SMALL)
        base = torch.eye(size) if base is None else base.detach().clone()
        if rows.is_meta:  # a stored model is checked: shapes alone
            return base
        inputs = self.vectors[self.vectors.any(1)][:_STAND_INS].to(rows)
        scores = (inputs - inputs.mean(0)) @ base.T @ (base @ rows.T)  # (M, L)
        deviation = scores.std() if scores.numel() > 1 else scores.new_zeros(())
        # Without texts (when weights are loaded later) there is nothing to scale by.
        return base * (spread / deviation) if deviation > 0 else base


class TextTie(nn.Module):
    """The part of label vectors that comes from the labels' texts.

    Args:
        rows: (n, N) text vectors n_j of the labels of this process.
        counts: (L,) number of training texts of each label.
        start: (W, N) initial value of P.
        dropout: Probability of dropping δ_j in training.
        worth: Number of training texts at which δ_j counts half.
        labels: The labels of this process.
    """

    rows: Tensor
    share: Tensor
    rarest: Tensor
    offset: Tensor

    def __init__(
        self,
        rows: Tensor,
        counts: Tensor,
        start: Tensor,
        *,
        dropout: float,
        worth: float,
        labels: LabelSlice,
    ) -> None:
        super().__init__()
        self.project = nn.Parameter(start)
        self.dropout = dropout
        self.register_buffer("rows", rows)
        self.register_buffer("offset", rows.new_zeros(len(rows)))
        seen = counts > 0
        fewest = counts[seen].min() if seen.any() else 0
        own = torch.where(seen, counts / (counts + worth), 0.0)
        here = slice(*labels.bounds(len(counts)))
        self.register_buffer("share", own[here], persistent=False)
        self.register_buffer("rarest", (counts == fewest)[here], persistent=False)
        self._kept: tuple[object, Tensor] | None = None
        self.n_labels, self.labels = len(counts), labels

    def vectors(self, delta: Tensor) -> Tensor:
        """Return `P n_j + c_j δ_j`, (L, W); cached while predicting."""
        if self.training or torch.is_grad_enabled():
            return self._sum(delta)
        state = (self.project.data_ptr(), self.project._version, delta.data_ptr(), delta._version)
        kept = self._kept  # read once: other threads may replace it
        if kept is None or kept[0] != state:
            kept = self._kept = state, self._sum(delta)
        return kept[1]

    def _sum(self, delta: Tensor) -> Tensor:
        share, named = self.share, self.rows.any(1)
        # A label without a text consists of δ_j alone.
        share = torch.where(named, share, (share > 0).to(share))
        if self.training and self.dropout:
            # Drawn for all labels, so that processes with some of them draw the same.
            left_out = torch.rand(self.n_labels, device=share.device) < self.dropout
            own = slice(*self.labels.bounds(self.n_labels))
            share = share.masked_fill(left_out[own] & named, 0.0)
        (project,) = self.labels.shared([self.project])
        vectors: Tensor = self.rows @ project.T + delta * share.unsqueeze(1)
        return vectors

    def biases(self, bias: Tensor) -> Tensor:
        """Return biases (L,); for labels that were never trained, from those of the rarest."""
        return torch.where(self.share > 0, bias, self._of_rarest(bias.detach()) + self.offset)

    def level(self, means: Tensor) -> None:
        """Give labels that were never trained the mean score of the rarest labels.

        Args:
            means: (n,) mean logits of the labels over training texts.
        """
        away = self._of_rarest(means) - means
        self.offset += torch.where(self.share > 0, 0.0, away)

    def _of_rarest(self, values: Tensor) -> Tensor:
        """Return the mean of the rarest labels' values."""
        total = self.labels.sum((values * self.rarest).sum())
        return total / self.labels.sum(self.rarest.sum())

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Read a state; those written by earlier versions have no offsets."""
        name = f"{prefix}offset"
        state_dict[name] = state_dict.get(name, torch.zeros_like(self.offset))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def train(self, mode: bool = True) -> TextTie:
        """Also clear the cache: replayed CUDA graphs change weights without a version change."""
        self._kept = None
        super().train(mode)
        return self


def tie_parts(tie: TextTie | None) -> list[LabelPart]:
    """Return the tensors of a tie that have a row for each label."""
    return [] if tie is None else [LabelPart(tie, ("rows", "share", "rarest", "offset"))]


def tied_tensors(
    tie: TextTie | None, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the label vectors and biases that score documents; either may be missing."""
    if tie is not None:
        assert weight is not None, "a tie needs label vectors"
        weight = tie.vectors(weight)
        bias = None if bias is None else tie.biases(bias)
    return tuple(tensor for tensor in (weight, bias) if tensor is not None)
