"""The contract of everything that ranks labels: a trained system, or several as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from glocal.data.batches import Batch
from glocal.data.chunks import Chunking
from glocal.ranking.combination import Combination
from glocal.ranking.topk import TopK

__all__ = ["COMBINED", "MEAN", "Ranker"]

COMBINED = "combined"
MEAN = "mean"  # of the experts' probabilities, whatever combines them


class Ranker(nn.Module, ABC):
    """Finds the best labels of documents in a fixed label space.

    Attributes:
        n_labels: Number of labels.
        expert_names: The parts whose predictions are reported besides the combined ones.
        combination: How the parts' scores become one.
    """

    n_labels: int
    expert_names: list[str]
    combination: Combination = Combination()

    @property
    @abstractmethod
    def chunking(self) -> Chunking | None:
        """How batches must cut long documents; None where they are read up to a length alone."""

    @abstractmethod
    def topk(
        self,
        batch: Batch,
        k: int,
        *,
        candidates: Tensor | None = None,
        allowed: Tensor | None = None,
        parts: Sequence[str] = (),
    ) -> dict[str, TopK]:
        """The best labels of each document by probability, under the key `combined`.

        Args:
            batch: The documents.
            k: How many labels.
            candidates: (B, M) label ids to score, −1 for none; by default every label.
            allowed: (L,) bool, labels that may be predicted.
            parts: Also give the best labels of these, under their names: of experts by themselves,
                or of the `mean` of all experts' probabilities.
        """
