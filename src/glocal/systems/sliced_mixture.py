"""A mixture of experts whose labels may be sharded over processes."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any

from glocal.data.batches import Batch
from glocal.errors import ConfigError
from glocal.experts.expert import Expert
from glocal.label_slice import LabelPart, LabelSlice
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.expert_topk import ExpertRanker
from glocal.ranking.ranker import Ranked
from glocal.ranking.slice_ranking import rank_slice
from glocal.systems.system import System


class SlicedMixture(ExpertRanker, System):
    """Experts that score the labels of this process: all of them, or a slice."""

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

    def label_parts(self) -> list[LabelPart]:
        """Return the label parameters of the trained experts, and what is known of each label."""
        if self.recipe.candidates.mode != "full":
            raise ConfigError(
                "labels can be sharded where experts score all of them; set candidates.mode=full"
            )
        parts = [LabelPart(self, ("counts", "untaught"))]
        for expert in self.trained_experts():
            own = expert.label_parts()
            if own is None:
                raise ConfigError(f"the labels of the expert {expert.name} cannot be sharded")
            parts += own
        return parts

    def use_slice(self, labels: LabelSlice) -> None:
        """Score a slice of the labels from now on."""
        super().use_slice(labels)
        for expert in self.trained_experts():
            expert.use_slice(labels)

    def rank(self, batch: Batch, states: Any, request: RankRequest) -> Ranked:
        """Return the best labels; where labels are sharded, those of all processes."""
        every = functools.partial(super().rank, batch, states)
        return rank_slice(self.labels_here, self.n_labels, request, every)
