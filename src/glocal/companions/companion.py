"""The protocol of companions: models of raw text whose output feeds experts.

A companion is fitted on the training texts before the encoder is trained. It turns any text into
arrays of fixed width (`features`), which travel with the batches to the experts that read them, and
it is stored in a folder of its own inside the model directory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from glocal.config import Recipe
from glocal.errors import ModelError
from glocal.progress import Progress, StagedProgress, silent

if TYPE_CHECKING:
    from glocal.companions.sparse.cluster_solvers import ClusterSolvers
    from glocal.companions.sparse.word_weights import Contribution
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.data.corpus import Corpus
    from glocal.encoders.static import StaticVectors
    from glocal.vocabulary.label_change import LabelChange
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import LabelTable

# Names of the arrays that companions put into batches and experts read.
SCOPE, SCOPE_WEIGHT = "scope", "scope_weight"  # teacher: labels voted for, strength of each vote
SPARSE, SPARSE_ODDS = "sparse", "sparse_odds"  # sparse model: best labels and their log-odds

Arrays = dict[str, np.ndarray]  # name → (texts, …)


@dataclass(frozen=True)
class FitInputs:
    """Everything a companion may be fitted on.

    Args:
        recipe: The settings.
        train: The training texts.
        labels: The label space.
        table: Names, descriptions and parents of labels.
        vectors: Word vectors, where the recipe uses any (see `word_vectors`).
        device: Where to compute: `cpu`, `cuda` or `cuda:N`, or `auto` for a GPU if there is one.
        solvers: Workers that fit a companion together; None for this process alone.
    """

    recipe: Recipe
    train: Corpus
    labels: LabelSpace
    table: LabelTable | None = None
    vectors: StaticVectors | None = None
    device: str = "auto"
    solvers: ClusterSolvers | None = None


class Companion(ABC):
    """A model of raw text.

    Attributes:
        folder: Its folder inside the model directory.
        reads_word_vectors: Whether it is fitted on static word vectors.
        feeds_training: Whether training reads it; otherwise it may be fitted meanwhile.
        fitted_together: Whether all processes of a run fit it at once, each a part of it.
    """

    folder: ClassVar[str]
    reads_word_vectors: ClassVar[bool] = False
    feeds_training: ClassVar[bool] = True
    fitted_together: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(cls, inputs: FitInputs, *, progress: StagedProgress = silent) -> Self:
        """Fit the companion on the training texts."""

    @abstractmethod
    def features(
        self,
        corpus: Corpus,
        *,
        allowed: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Arrays:
        """Return the features of a corpus's documents.

        Args:
            corpus: The documents.
            allowed: (L,) bool, the only labels that will be asked for; by default all.
            progress: Called with (done, total).
        """

    @abstractmethod
    def features_for_texts(
        self, texts: Sequence[str], *, allowed: np.ndarray | None = None
    ) -> Arrays:
        """Return the features of texts, equal to those of a corpus with the same texts."""

    def placed(self, device: str) -> Self:
        """Return the companion as it computes features on a device; by default on the CPU alone.

        Args:
            device: `cpu`, `cuda` or `cuda:N`.
        """
        return self

    def training_features(self, train: Corpus, *, progress: Progress | None = None) -> Arrays:
        """Return the features that batches of training texts carry; by default none."""
        return {}

    def fingerprint(self) -> str | None:
        """Identify what training depends on; None where training reads nothing of it."""
        return None

    def label_vectors(self, *, blank: bool = False) -> np.ndarray | None:
        """Return first vectors for labels, (T, D); None for a companion that offers none.

        Args:
            blank: Return zeros of the same shape, for a system whose weights are to be loaded.
        """
        return None

    def word_contributions(self, text: str, label: int) -> list[Contribution]:
        """Return the words of a text that speak for a label or against it; by default none."""
        return []

    def similar_texts(self, text: str) -> TeacherExplanation | None:
        """Return similar training texts and the labels they vote for; by default None."""
        return None

    def with_labels(self, change: LabelChange) -> Self:
        """Return the companion for other labels; scores of labels that stay are the same.

        Raises:
            ModelError: It cannot be changed without training it again.
        """
        raise ModelError(
            f"the labels of a model with a {self.folder} cannot be changed; train it again with "
            "the labels wanted"
        )

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the companion into a folder of its own."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, labels: LabelSpace) -> Self:
        """Read a companion written by `save`.

        Args:
            folder: The companion's folder.
            labels: The label space it was fitted for.

        Raises:
            ModelError: The files are missing, damaged or belong to other labels.
        """
