"""The contract of everything that ranks labels: a trained system, or several as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glocal.data.batches import Batch
from glocal.data.chunks import Chunking
from glocal.ranking.combination import Combination
from glocal.ranking.topk import TopK


class Ranked(NamedTuple):
    """The best labels of a batch by the whole model, and by its parts where asked for."""

    combined: TopK
    experts: Mapping[str, TopK]  # by expert name
    mean: TopK | None  # by the mean of the experts' probabilities, whatever combines them


@dataclass(frozen=True)
class RankRequest:
    """A request for the best labels of a batch.

    Attributes:
        k: Labels per document.
        candidates: (B, M) label ids to score, −1 for none; by default every label.
        allowed: (L,) bool, labels that may be predicted.
        experts: Names of experts whose own best labels are also returned.
        mean: Whether the best labels by the mean of the experts' probabilities are too.
    """

    k: int
    candidates: Tensor | None = None
    allowed: Tensor | None = None
    experts: Sequence[str] = ()
    mean: bool = False


class Ranker(nn.Module, ABC):
    """Finds the best labels of documents in a fixed label space.

    Attributes:
        n_labels: Number of labels.
        expert_names: The experts, each of which can also be asked for its own best labels.
        combination: How the experts' scores are combined.
    """

    n_labels: int
    expert_names: list[str]
    combination: Combination = Combination()

    @property
    @abstractmethod
    def chunking(self) -> Chunking | None:
        """The way batches must cut long documents; None if only their start is read."""

    @abstractmethod
    def prepare(self, batch: Batch) -> Any:
        """Read the documents of a batch once: the states that `rank` works on."""

    @abstractmethod
    def expert_logits(self, states: Any, labels: slice | Tensor) -> dict[str, Tensor]:
        """Return each expert's logits of labels: a slice of all, or (B, C) of each document."""

    @abstractmethod
    def rank(self, batch: Batch, states: Any, request: RankRequest) -> Ranked:
        """Return the best labels by probability of documents that were prepared."""

    @torch.no_grad()
    def topk(self, batch: Batch, k: int, **options: Any) -> Ranked:
        """Prepare documents and return their best labels; the options are those of a request."""
        return self.rank(batch, self.prepare(batch), RankRequest(k, **options))
