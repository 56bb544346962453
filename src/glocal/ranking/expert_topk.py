"""Top-k by the scores of named experts.

- every label, chunk by chunk, so that no (documents × labels) matrix is held; or
- a shortlist for each document, where every expert scores just that.

A single mixture of experts ranks this way, and so does an ensemble of mixtures.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from glocal.data.batches import Batch
from glocal.experts.scattered import at_labels
from glocal.ranking.combination import Combination
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.ranker import Ranked, Ranker
from glocal.ranking.topk import RunningTopK


class ExpertRanker(Ranker):
    """Ranks labels by the combined logits of its experts.

    Attributes:
        counts: Number of training texts of each label, (L,); a buffer, on the logits' device.
    """

    counts: Tensor
    learns_weights = True

    @abstractmethod
    def chunks(self, documents: int, device: torch.device) -> list[slice]:
        """Return the slices of labels that are scored together."""

    @abstractmethod
    def shortlist(self, batch: Batch, states: Any, k: int, allowed: Tensor | None) -> Tensor | None:
        """Return labels worth scoring per document, (B, M), −1 for none; None for every label."""

    def rank(self, batch: Batch, states: Any, request: RankRequest) -> Ranked:
        """Rank by the mean of the experts' probabilities (Eq. 7), or as `combination` says."""
        k, candidates, allowed = request.k, request.candidates, request.allowed
        experts, mean = request.experts, request.mean
        given = candidates is not None
        if not given:
            candidates = self.shortlist(batch, states, k, allowed)
        running = [RunningTopK(k) for _ in range(1 + len(experts) + mean)]
        for labels, scored in self._label_sets(batch, candidates):
            probabilities = self._probabilities(states, scored, experts, mean)
            for best, scores in zip(running, probabilities, strict=True):
                best.update(scores, labels, allowed)
        if candidates is not None and not given and candidates.shape[1] < k:
            for best in running:
                self._fill(best, candidates, allowed)
        combined, *parts = [best.result() for best in running]
        return Ranked(
            combined,
            dict(zip(experts, parts, strict=False)),  # the mean, if any, comes after the experts
            parts[-1] if mean else None,
        )

    def _fill(self, best: RunningTopK, shortlist: Tensor, allowed: Tensor | None) -> None:
        """Add the labels outside a shortlist below all others, the most frequent first."""
        found = best.result()
        lowest = torch.where(found.indices >= 0, found.scores, 1.0).amin(1, keepdim=True)
        share = (self.counts + 1) / (self.counts.max() + 2)  # below 1
        for chunk in self.chunks(len(shortlist), shortlist.device):
            labels = torch.arange(chunk.start, chunk.stop, device=shortlist.device)
            listed, _ = at_labels(shortlist, torch.zeros_like(shortlist), labels)
            scores = (lowest * share[chunk]).masked_fill(listed, -1.0)
            best.update(scores, labels, allowed)

    def _label_sets(
        self, batch: Batch, candidates: Tensor | None
    ) -> Iterator[tuple[Tensor, slice | Tensor]]:
        """Yield label ids that are scored together, and how to ask the experts for them."""
        if candidates is not None:
            yield candidates, candidates.clamp(min=0)
            return
        device = batch.input_ids.device
        for chunk in self.chunks(len(batch), device):
            yield torch.arange(chunk.start, chunk.stop, device=device), chunk

    def _probabilities(
        self, states: Any, labels: slice | Tensor, experts: Sequence[str], mean: bool
    ) -> Iterator[Tensor]:
        """Yield the combined probabilities, those of experts by themselves, and their mean."""
        logits = self.expert_logits(states, labels)
        every = list(logits), list(logits.values()), self.counts[labels]
        yield self.combination(*every)
        for name in experts:
            yield torch.sigmoid(logits[name])
        if mean:
            yield Combination()(*every)


def deduplicate(labels: Tensor) -> Tensor:
    """Sort the labels of each row (B, M) and replace repetitions by −1."""
    ordered = labels.sort(1).values
    again = ordered[:, 1:] == ordered[:, :-1]
    return torch.cat([ordered[:, :1], ordered[:, 1:].masked_fill(again, -1)], 1)
