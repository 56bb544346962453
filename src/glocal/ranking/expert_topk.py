"""Top-k by the scores of named experts.

- every label, chunk by chunk, so that no (documents × labels) matrix is held; or
- a shortlist for each document, where every expert scores just that.

One mixture of experts ranks this way (`mixture.py`), and so do several together (`members.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glocal.data.batches import Batch
from glocal.ranking.combination import Combination
from glocal.ranking.ranker import COMBINED, MEAN, Ranker
from glocal.ranking.topk import RunningTopK, TopK, topk_of

__all__ = ["ExpertRanker", "each_once"]


class ExpertRanker(Ranker):
    """Ranks labels by what its experts' logits come to together.

    Attributes:
        counts: Training texts of each label, (L,), a buffer: where the logits are.
    """

    counts: Tensor

    @abstractmethod
    def prepare(self, batch: Batch) -> Any:
        """What the experts need to know of a batch, computed once."""

    @abstractmethod
    def expert_logits(self, states: Any, labels: slice | Tensor) -> dict[str, Tensor]:
        """Each expert's logits of labels: a slice of all, or (B, C) of each document."""

    @abstractmethod
    def chunks(self, documents: int, device: torch.device) -> list[slice]:
        """Label slices that are scored at a time."""

    @abstractmethod
    def shortlist(self, batch: Batch, states: Any, k: int, allowed: Tensor | None) -> Tensor | None:
        """The labels of each document worth scoring, (B, M), −1 for none; None for every label."""

    @torch.no_grad()
    def topk(
        self,
        batch: Batch,
        k: int,
        *,
        candidates: Tensor | None = None,
        allowed: Tensor | None = None,
        parts: Sequence[str] = (),
    ) -> dict[str, TopK]:
        """By the mean of the experts' probabilities (GlocalXML Eq. 7), or as `combination` says."""
        states = self.prepare(batch)
        if candidates is None:
            candidates = self.shortlist(batch, states, k, allowed)
        if candidates is None:
            return self._topk_of_all(batch, states, k, allowed, parts)
        scores = self._probabilities(states, candidates.clamp(min=0), parts)
        return {name: topk_of(of, candidates, k, allowed) for name, of in scores.items()}

    def _topk_of_all(
        self, batch: Batch, states: Any, k: int, allowed: Tensor | None, parts: Sequence[str]
    ) -> dict[str, TopK]:
        device = batch.input_ids.device
        running = {name: RunningTopK(k) for name in (COMBINED, *parts)}
        for chunk in self.chunks(len(batch), device):
            labels = torch.arange(chunk.start, chunk.stop, device=device)
            for name, scores in self._probabilities(states, chunk, parts).items():
                running[name].update(scores, labels, allowed)
        return {name: best.result() for name, best in running.items()}

    def _probabilities(
        self, states: Any, labels: slice | Tensor, parts: Sequence[str]
    ) -> dict[str, Tensor]:
        """What the experts' probabilities come to together, and those of the parts asked for."""
        logits = self.expert_logits(states, labels)

        def combined(how: Combination) -> Tensor:
            return how(list(logits), list(logits.values()), self.counts[labels])

        scores = {COMBINED: combined(self.combination)}
        for part in parts:
            is_mean = part == MEAN
            scores[part] = combined(Combination()) if is_mean else torch.sigmoid(logits[part])
        return scores


def each_once(labels: Tensor) -> Tensor:
    """The labels of each row (B, M) sorted, repetitions replaced by −1."""
    ordered = labels.sort(1).values
    again = ordered[:, 1:] == ordered[:, :-1]
    return torch.cat([ordered[:, :1], ordered[:, 1:].masked_fill(again, -1)], 1)
