"""The contract between a system and the training loop and predictor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.config.resolve import ResolvedRecipe
from glocal.data.batches import Batch, Collator
from glocal.data.chunks import Chunking
from glocal.encoders.encoder import Encoder, Features
from glocal.errors import ConfigError
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice
from glocal.losses.chunked import RowUpdate
from glocal.ranking.ranker import Ranker


@dataclass(frozen=True)
class TrainingPosition:
    """The position of a run: the next optimizer step and the number of steps."""

    step: int
    steps: int
    seed: int = 0

    @property
    def fraction(self) -> float:
        """The fraction of the run that is done, from 0 to 1."""
        return self.step / max(1, self.steps)


@dataclass(frozen=True)
class LabelStatistics:
    """The facts about the training labels that a system is built from."""

    counts: np.ndarray  # (L,) training texts per label
    n_documents: int
    teacher_vectors: np.ndarray | None = None  # (T, D) of the teacher's labels
    texts: Sequence[str] | None = None  # (L,) names and descriptions, where a recipe uses them
    text_vectors: Mapping[int, np.ndarray] | None = None  # layer → (L, H), encoded from the texts
    n_added: int = 0  # labels at the end that were added after training
    here: LabelSlice = EVERY_LABEL  # the labels whose parameters this process has

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

    def label_parts(self) -> list[LabelPart]:
        """Return the tensors of trained experts that a run may shard by labels.

        Raises:
            ConfigError: An expert cannot be sharded.
        """
        raise ConfigError(f"{type(self).__name__} cannot be trained with sharded labels")

    def use_slice(self, labels: LabelSlice) -> None:
        """Score a slice of the labels from now on; `label_parts` hold no others any more."""
        self.labels_here = labels

    def features(self, batch: Batch) -> Features:
        """Return hidden states; training builds no autograd graph for a frozen encoder."""
        frozen = self.recipe.encoder.freeze and self.training
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            features: Features = self.encoder(batch)
        return features

    @property
    def chunking(self) -> Chunking | None:
        """The way the encoder reads long documents; None if they are cut off."""
        return self.encoder.chunking

    @abstractmethod
    def training_step(self, batch: Batch, position: TrainingPosition) -> Tensor:
        """Return the loss of a batch: summed over its documents, divided by `batch.denominator`."""

    @abstractmethod
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return all parameters by the name of their learning rate."""

    def arrange_labels(self, documents: Collator) -> None:
        """Arrange labels by the training documents, where the recipe asks for it."""

    def init_label_parameters(self, batches: Iterable[Batch]) -> None:
        """Initialise label parameters from the training documents, where the recipe asks for it."""

    def level_untaught(self, batches: Iterable[Batch]) -> None:
        """Adjust the scores of labels without training texts, after training, where there are."""

    def denominator(self, gold: Any, positions: np.ndarray) -> float:
        """Return the divisor of a step's loss, over all its parts and processes.

        Args:
            gold: CSR matrix of all gold labels; columns from `n_labels` on are unknown labels.
            positions: The step's documents.
        """
        return float(len(positions))

    @property
    def supports_cuda_graphs(self) -> bool:
        """Whether the training step runs entirely on the device, so that a graph can replay it."""
        return False

    def phase(self, position: TrainingPosition) -> str:
        """Return the name of the step's computation; steps of one name compute the same."""
        return "plain"

    def forward(self, batch: Batch, position: TrainingPosition) -> Tensor:
        """Run the training step; data-parallel wrappers call `forward`."""
        return self.training_step(batch, position)
