"""The contract between a system and the training loop and predictor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from glocal.config.resolve import ResolvedRecipe
from glocal.data.batches import Batch
from glocal.data.chunks import Chunking
from glocal.encoders.encoder import Encoder
from glocal.losses.chunked import RowUpdate
from glocal.ranking.ranker import Ranker

__all__ = ["LabelStatistics", "System", "TrainingPosition"]


@dataclass(frozen=True)
class TrainingPosition:
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


class System(Ranker):
    """A trainable classifier.

    Attributes:
        recipe: The settings it was built from.
        encoder: Reads the text.
        row_updates: What gets the gradients of label matrices, by the identity of the matrix.
    """

    recipe: ResolvedRecipe
    encoder: Encoder
    row_updates: Mapping[int, RowUpdate] = MappingProxyType({})

    def label_matrices(self) -> list[nn.Parameter]:
        """Parameters with a row for each label whose gradients can be used chunk by chunk."""
        return []

    @property
    def chunking(self) -> Chunking | None:
        """As the encoder reads them."""
        return self.encoder.chunking

    @abstractmethod
    def training_step(self, batch: Batch, position: TrainingPosition) -> Tensor:
        """The loss of a batch: summed over its documents, divided by `batch.denominator`."""

    @abstractmethod
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """All parameters by the name of their learning rate."""

    def init_label_parameters(self, batches: Iterable[Batch]) -> None:
        """Start label parameters from the training documents, where the recipe asks for it."""

    def denominator(self, gold: Any, positions: np.ndarray) -> float:
        """What the loss of a step is divided by, over all its parts and processes.

        Args:
            gold: CSR matrix of all gold labels; columns from `n_labels` on are outside the space.
            positions: The step's documents.
        """
        return float(len(positions))

    @property
    def supports_cuda_graphs(self) -> bool:
        """Whether the training step computes on the device alone, so that a graph can replay it."""
        return False

    def phase(self, position: TrainingPosition) -> str:
        """A name for the computation the step does now; steps of one name do the same."""
        return "plain"

    def forward(self, batch: Batch, position: TrainingPosition) -> Tensor:
        """The training step: data-parallel wrappers call `forward`."""
        return self.training_step(batch, position)
