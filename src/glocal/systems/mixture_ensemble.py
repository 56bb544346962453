"""Several mixtures of the same experts, trained from different seeds, as one.

- an expert's log-odds are the mean of its members' log-odds; the experts' weights are applied to
  them, as for a single mixture (`ranking.combination`);
- every member scores every label, or with a shortlist the labels that any of them proposes;
- all members are in memory together: a model of three needs three times the memory of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from glocal.data.batches import Batch
from glocal.data.chunks import Chunking
from glocal.experts.expert import State
from glocal.ranking.expert_topk import ExpertRanker, deduplicate
from glocal.ranking.ranker import Ranker
from glocal.systems.mixture import ExpertMixture

_LARGEST = 100.0  # an infinite log-odds of one member must not silence the others


class MixtureEnsemble(ExpertRanker):
    """Mixtures with the same experts over the same labels.

    Args:
        members: At least one mixture.
    """

    def __init__(self, members: Sequence[Ranker]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        first = next(self.mixtures())
        self.n_labels, self.expert_names = first.n_labels, first.expert_names
        self.register_buffer("counts", first.counts, persistent=False)

    def mixtures(self) -> Iterator[ExpertMixture]:
        """Yield the members, in order."""
        for member in self.members:
            assert isinstance(member, ExpertMixture)
            yield member

    @property
    def chunking(self) -> Chunking | None:
        """The way all members read long documents."""
        return next(self.mixtures()).chunking

    def prepare(self, batch: Batch) -> list[dict[str, State]]:
        """Return the states of every member's experts."""
        return [member.prepare(batch) for member in self.mixtures()]

    def expert_logits(
        self, states: Sequence[dict[str, State]], labels: slice | Tensor
    ) -> dict[str, Tensor]:
        """Return the mean of the members' log-odds, by expert."""
        totals: dict[str, Tensor] = {}
        for member, state in zip(self.mixtures(), states, strict=True):
            for name, logits in member.expert_logits(state, labels).items():
                finite = logits.clamp(-_LARGEST, _LARGEST)
                totals[name] = totals[name] + finite if name in totals else finite
        return {name: total / len(self.members) for name, total in totals.items()}

    def chunks(self, documents: int, device: torch.device) -> list[slice]:
        """Return the label chunks of one member: members take turns within a chunk."""
        return next(self.mixtures()).chunks(documents, device)

    def shortlist(
        self,
        batch: Batch,
        states: Sequence[dict[str, State]],
        k: int,
        allowed: Tensor | None,
    ) -> Tensor | None:
        """Return the labels that any member proposes; None where members score every label."""
        lists = [
            member.shortlist(batch, state, k, allowed)
            for member, state in zip(self.mixtures(), states, strict=True)
        ]
        found = [labels for labels in lists if labels is not None]
        return deduplicate(torch.cat(found, 1)) if len(found) == len(lists) else None


def mixtures_of(system: Ranker) -> list[ExpertMixture]:
    """Return the mixtures a model consists of: none, one, or several members."""
    if isinstance(system, MixtureEnsemble):
        return list(system.mixtures())
    return [system] if isinstance(system, ExpertMixture) else []
