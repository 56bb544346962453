"""A mixture of experts whose labels may be sharded over processes.

Labels that experts propose, and clusters of labels, are the same in every process; each process
scores those of the labels that it has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from glocal.data.batches import Batch
from glocal.errors import ConfigError
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import Expert, State
from glocal.experts.half_labels import HalfLabels
from glocal.label_slice import LabelPart, LabelSlice
from glocal.losses.chunked import label_chunks
from glocal.losses.memory import ChunkUse
from glocal.ranking.aplc_topk import aplc_topk
from glocal.ranking.expert_topk import ExpertRanker, deduplicate
from glocal.ranking.topk import RunningTopK
from glocal.systems.label_tree import LabelTree
from glocal.systems.system import System


class SlicedMixture(ExpertRanker, System):
    """Experts that score the labels of this process: all of them, or a slice."""

    tree: LabelTree | None
    _half_labels: HalfLabels

    @abstractmethod
    def _experts(self) -> Iterator[Expert]:
        """Yield the experts in use."""

    @abstractmethod
    def trained_experts(self) -> list[Expert]:
        """Return the experts that the training loss includes."""

    @property
    def shortlists(self) -> bool:
        """Whether the other experts score only the labels that the document expert proposes."""
        return self.recipe.candidates.mode == "shortlist"

    @property
    def n_here(self) -> int:
        """Number of labels whose parameters are in this process."""
        start, stop = self.labels_here.bounds(self.n_labels)
        return stop - start

    def every_id(self, labels: slice | Tensor) -> slice | Tensor:
        """Return labels of this process as experts count them that have all labels."""
        start, _ = self.labels_here.bounds(self.n_labels)
        if not start:
            return labels
        if isinstance(labels, slice):
            return slice(labels.start + start, labels.stop + start)
        return labels + start

    def label_parts(self) -> list[LabelPart]:
        """Return the label parameters of the trained experts, and what is known of each label."""
        parts = [LabelPart(self, ("counts", "untaught"))]
        for expert in self.trained_experts():
            own = expert.label_parts()
            if own is None:
                raise ConfigError(f"the labels of the expert {expert.name} cannot be sharded")
            parts += own
        return parts

    def use_slice(self, labels: LabelSlice) -> None:
        """Score other labels from now on, whose parameters are here."""
        super().use_slice(labels)
        for expert in self.trained_experts():
            expert.use_slice(labels)
        if self.tree is not None:
            self.tree.labels_here = labels

    # --- candidates -----------------------------------------------------------------------------

    @property
    def proposer(self) -> DocumentExpert | None:
        """The first document expert, which proposes labels; None where there is none."""
        return next((e for e in self._experts() if isinstance(e, DocumentExpert)), None)

    def shortlist(
        self, batch: Batch, states: dict[str, State], k: int, allowed: Tensor | None
    ) -> Tensor | None:
        """Return the labels that experts propose, where the recipe uses candidates; else None.

        A single expert that does not rank every label ranks only its own suggestions; the other
        labels follow by their frequency.
        """
        if self.tree is not None:
            return self._with_suggestions(self.tree.candidates(states, k, allowed), states)
        if not self.shortlists:
            first, *others = self._experts()
            if others or first.ranks_all:
                return None
            return first.suggestions(states[first.name])
        proposed = self._propose(batch, states, max(k, self.recipe.candidates.predict), allowed)
        return self._with_suggestions(proposed, states)

    def _propose(
        self, batch: Batch, states: dict[str, State], k: int, allowed: Tensor | None
    ) -> Tensor:
        proposer = self.proposer
        assert proposer is not None, "a rule for shortlists"
        if proposer.head is not None:
            (document,) = states[proposer.name]
            with torch.autocast(document.device.type, enabled=False):
                return aplc_topk(proposer.head, document.float(), k, allowed=allowed).indices
        best, here, state = RunningTopK(k), self.labels_here, states[proposer.name]
        device, (start, _) = batch.input_ids.device, here.bounds(self.n_labels)
        own = allowed if allowed is None else allowed[start : start + self.n_here]
        if (found := self._half_labels.best(proposer, state, k, own)) is not None:
            best.update(torch.sigmoid(proposer.logits(state, found)), found + start, allowed)
            return here.merged(*best.result(), k)[0]
        limit = ChunkUse.EXPERT_LOGITS.limit(device.type)
        for chunk in label_chunks(self.n_here, documents=len(batch), width=1, limit=limit):
            labels = torch.arange(start + chunk.start, start + chunk.stop, device=device)
            logits = proposer.logits(state, chunk)
            best.update(torch.sigmoid(logits.float()), labels, allowed)
        return here.merged(*best.result(), k)[0]

    def _with_suggestions(self, proposed: Tensor, states: dict[str, State]) -> Tensor:
        """Return the proposed and the other experts' suggested labels, each once, −1 for none."""
        others = [expert.suggestions(states[expert.name]) for expert in self._experts()]
        count = self.recipe.candidates.predict
        found = [labels[:, :count].to(proposed) for labels in others if labels is not None]
        if not found:
            return proposed
        pooled = torch.cat([proposed, *found], 1)
        return deduplicate(pooled.masked_fill(pooled >= self.n_labels, -1))
