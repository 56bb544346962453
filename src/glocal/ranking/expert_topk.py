"""Top-k by the scores of named experts.

- every label, chunk by chunk, so that no (documents × labels) matrix is held; or
- a shortlist for each document, where every expert scores just that.

Where labels are sharded, a process scores those it has, and the best of all are merged.
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
from glocal.ranking.topk import RunningTopK, TopK


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
        """Return labels worth scoring per document, (B, M), −1 for none; None for every label.

        They are the same in every process.
        """

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
        found = [self._merged(best) for best in running]
        if candidates is not None and not given and candidates.shape[1] < k:
            found = [self._filled(best, k, candidates, allowed) for best in found]
        combined, *parts = found
        return Ranked(
            combined,
            dict(zip(experts, parts, strict=False)),  # the mean, if any, comes after the experts
            parts[-1] if mean else None,
        )

    def _merged(self, best: RunningTopK) -> TopK:
        """Return the best labels of all processes."""
        found = best.result()
        return TopK(*self.labels_here.merged(found.indices, found.scores, best.k))

    def _filled(self, found: TopK, k: int, shortlist: Tensor, allowed: Tensor | None) -> TopK:
        """Add the labels outside a shortlist below all others, the most frequent first."""
        lowest = torch.where(found.indices >= 0, found.scores, 1.0).amin(1, keepdim=True)
        most = self.labels_here.largest(self.counts.max())
        share = (self.counts + 1) / (most + 2)  # below 1
        best = RunningTopK(k)
        if self.labels_here.first:
            best.update(found.scores, found.indices)
        for labels, chunk in self._chunked(len(shortlist), shortlist.device):
            listed, _ = at_labels(shortlist, torch.zeros_like(shortlist), labels)
            scores = (lowest * share[chunk]).masked_fill(listed, -1.0)
            best.update(scores, labels, allowed)
        return self._merged(best)

    def _label_sets(
        self, batch: Batch, candidates: Tensor | None
    ) -> Iterator[tuple[Tensor, slice | Tensor]]:
        """Yield label ids that are scored together, and how to ask the experts for them."""
        if candidates is None:
            yield from self._chunked(len(batch), batch.input_ids.device)
            return
        own = self.labels_here.own(candidates, self.n_labels)
        start, _ = self.labels_here.bounds(self.n_labels)
        yield own, (own - start).clamp(min=0)

    def _chunked(self, documents: int, device: torch.device) -> Iterator[tuple[Tensor, slice]]:
        """Yield the ids of the labels here, chunk by chunk, and their places."""
        start, _ = self.labels_here.bounds(self.n_labels)
        for chunk in self.chunks(documents, device):
            yield torch.arange(start + chunk.start, start + chunk.stop, device=device), chunk

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
