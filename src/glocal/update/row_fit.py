"""Label rows of an expert, trained on what the expert made of some texts; all else is fixed.

- The loss is that of training: the log loss of each pair of text and label. Rows are held near
  their start, so that a few texts move them little.
- An expert whose score depends on every token takes long for each pair of text and label. There, of
  the texts that lack a label, those take part that score highest for it, and some of the others
  that stand for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import backward
from torch.nn import functional

from glocal.experts.expert import Expert, State, rows_at

_STEPS = 20
_NEAREST, _OTHERS = 16, 16  # texts without a label that it is trained against


@dataclass(frozen=True)
class Pace:
    """How fast rows move.

    Attributes:
        rate: Length of a step: of vectors in standard deviations of their values, and of biases.
        hold: How many times as hard as usual rows are held near their start.
    """

    rate: float
    hold: float


@dataclass
class Rows:
    """Label rows of one expert.

    Attributes:
        parts: Vectors (k, W) and, where there are any, biases (k,).
        text: (k, N) the text's part of the vectors, where they are tied to it.
    """

    parts: list[Tensor]
    text: Tensor | None = None

    def joined(self, others: Rows) -> Rows:
        """Return these rows, and others after them."""
        parts = [torch.cat(pair) for pair in zip(self.parts, others.parts, strict=True)]
        if self.text is None or others.text is None:
            return Rows(parts)
        return Rows(parts, torch.cat([self.text, others.text]))


@dataclass(frozen=True)
class ReadTexts:
    """Texts that experts have read.

    Attributes:
        batches: For each batch, the experts' states, and the places of its texts.
        target: (n, k) float32, whether each text has each label.
        weight: (n,) float32, how much each text counts.
        hold: (k,) float32, the pull of each label's row towards its start, in units of the loss of
            one text; infinite for rows that stay.
    """

    batches: Sequence[tuple[Sequence[State], Tensor]]
    target: Tensor
    weight: Tensor
    hold: Tensor


def fit_rows(expert: Expert, place: int, start: Rows, texts: ReadTexts, pace: Pace) -> Rows:
    """Return label rows trained by the log loss.

    Args:
        expert: The expert.
        place: Its place among the experts' states.
        start: Where the rows start.
        texts: The texts.
        pace: How fast rows move.
    """
    free = texts.hold.isfinite()
    hold = torch.where(free, pace.hold * texts.hold, 0.0)[:, None]
    rows = [part.detach().clone().float().requires_grad_() for part in start.parts]
    scale = float(start.parts[0].std().clamp(min=1e-3))
    rates = zip(rows, (pace.rate * scale, pace.rate), strict=False)  # not all have biases
    optimizer = torch.optim.Adam([{"params": [row], "lr": rate} for row, rate in rates])
    lessons = _lessons(expert, place, start, texts)
    with torch.enable_grad():
        for _ in range(_STEPS):
            optimizer.zero_grad()
            away = (rows[0] - start.parts[0]) / scale
            backward(0.5 * (hold * away.square()).sum())
            for state, labels, target, weight in lessons:
                own = rows if labels is None else [rows_at(row, labels) for row in rows]
                logits = expert.score(state, tuple(own)).float()
                losses = functional.binary_cross_entropy_with_logits(
                    logits, target, reduction="none"
                )
                backward((losses * weight).sum())
            optimizer.step()
    kept = [
        torch.where(free[(...,) + (None,) * (row.dim() - 1)], row, old).detach()
        for row, old in zip(rows, start.parts, strict=True)
    ]
    return Rows(kept, start.text)


def _lessons(
    expert: Expert, place: int, start: Rows, texts: ReadTexts
) -> list[tuple[State, Tensor | None, Tensor, Tensor]]:
    """Return for each batch its state, the labels (B, C) of its texts, targets and weights.

    The labels are `None` where all are trained on every text.
    """
    if expert.label_width == 1:
        return [
            (states[place], None, texts.target[rows], texts.weight[rows, None])
            for states, rows in texts.batches
        ]
    weights = _pair_weights(expert, place, start, texts)
    found: list[tuple[State, Tensor | None, Tensor, Tensor]] = []
    for states, rows in texts.batches:
        width = max(1, int((weights[rows] > 0).sum(1).max()))
        weight, labels = weights[rows].topk(width, dim=1)  # (B, C)
        found.append((states[place], labels, texts.target[rows].gather(1, labels), weight))
    return found


@torch.no_grad()
def _pair_weights(expert: Expert, place: int, start: Rows, texts: ReadTexts) -> Tensor:
    """Return (n, k) the weights of pairs of texts and labels, 0 for those that take no part."""
    scores = torch.empty_like(texts.target)
    for states, rows in texts.batches:
        scores[rows] = expert.score(states[place], tuple(start.parts)).float()
    scores.masked_fill_(texts.target > 0, -torch.inf)
    order = scores.argsort(dim=0, descending=True)
    without = (texts.target == 0).sum(0)  # (k,), and those come first
    rest = without - _NEAREST
    drawn = (rest.clamp(max=_OTHERS) / rest.clamp(min=1))[None]
    weights = (texts.target > 0).float()
    weights.scatter_(0, order[:_NEAREST], 1.0)
    if len(order) > _NEAREST:
        steps = torch.arange(len(order) - _NEAREST, device=order.device)[:, None]
        even = ((steps + 1) * drawn).floor() > (steps * drawn).floor()  # at even distances
        even &= steps < rest
        values = even / drawn.clamp(min=1e-9)
        weights.scatter_add_(0, order[_NEAREST:], values.float())
    return weights * texts.weight[:, None] * texts.hold.isfinite()


@torch.no_grad()
def write_rows(expert: Any, labels: np.ndarray, rows: Rows) -> None:
    """Write label rows into the parameters of an expert.

    Args:
        expert: A document or label-attention expert.
        labels: Their places.
        rows: The rows.
    """
    places = torch.from_numpy(labels)
    vectors, *bias = (part.cpu() for part in rows.parts)
    matrix: Tensor = expert.weight if hasattr(expert, "head") else expert.query
    if expert.tie is None or rows.text is None:
        matrix[places] = vectors.to(matrix)
    else:  # the row is the part of the text and, as far as there are examples, the label's own
        text, share = rows.text.cpu(), expert.tie.share[places, None]
        share = torch.where(text.any(1, keepdim=True), share, (share > 0).to(share))
        own = vectors - text @ expert.tie.project.float().T
        expert.tie.rows[places] = text.to(expert.tie.rows)
        matrix[places] = torch.where(share > 0, own / share.clamp(min=1e-6), 0.0).to(matrix)
    if bias:
        expert.bias[places] = bias[0].to(expert.bias)
