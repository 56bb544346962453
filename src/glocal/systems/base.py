"""The contract between a system and the training loop and predictor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from glocal.config import Recipe
from glocal.data.batches import Batch
from glocal.data.chunks import Chunking
from glocal.encoders.encoder import Encoder
from glocal.systems.combination import Combination
from glocal.systems.topk import TopK

__all__ = ["COMBINED", "MEAN", "LabelStatistics", "Progress", "Ranker", "System"]

COMBINED = "combined"
MEAN = "mean"  # of the experts' probabilities, whatever combines them


@dataclass(frozen=True)
class Progress:
    """Where a run stands: the optimizer step about to be taken, of so many."""

    step: int
    steps: int
    seed: int = 0

    @property
    def fraction(self) -> float:
        """Between 0 and 1."""
        return self.step / max(1, self.steps)


@dataclass(frozen=True)
class LabelStatistics:
    """What a system must know of the training labels."""

    counts: np.ndarray  # (L,) training texts per label
    n_documents: int
    teacher_vectors: np.ndarray | None = None  # (T, D) of the teacher's labels, where there is one
    texts: Sequence[str] | None = None  # (L,) names and descriptions, where a recipe uses them
    text_vectors: Mapping[int, np.ndarray] | None = None  # layer → (L, H), encoded from the texts

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.counts)


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


class System(Ranker):
    """A trainable classifier.

    Attributes:
        recipe: The settings it was built from.
        encoder: Reads the text.
    """

    recipe: Recipe
    encoder: Encoder

    @property
    def chunking(self) -> Chunking | None:
        """As the encoder reads them."""
        return self.encoder.chunking

    @abstractmethod
    def training_step(self, batch: Batch, progress: Progress) -> Tensor:
        """The loss of a batch: summed over its documents, divided by `batch.denominator`."""

    @abstractmethod
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """All parameters by the name of their learning rate."""

    def start_labels(self, batches: Iterable[Batch]) -> None:
        """Start label parameters from the training documents, where the recipe asks for it."""

    def denominator(self, gold: Any, positions: np.ndarray) -> float:
        """What the loss of a step is divided by, over all its parts and processes.

        Args:
            gold: CSR matrix of all gold labels; columns from `n_labels` on are outside the space.
            positions: The step's documents.
        """
        return float(len(positions))

    @property
    def recordable(self) -> bool:
        """Whether the training step computes on the device alone, so that a graph can replay it."""
        return False

    def phase(self, progress: Progress) -> str:
        """A name for the computation the step does now; steps of one name do the same."""
        return "plain"

    def forward(self, batch: Batch, progress: Progress) -> Tensor:
        """The training step: data-parallel wrappers call `forward`."""
        return self.training_step(batch, progress)
