"""The companions of one model, handled as a list. A new one is two lines in `companions_of`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glocal.companions.companion import Arrays, Companion, FitInputs
from glocal.config import Recipe
from glocal.config.expert_names import SPARSE_EXPERT
from glocal.progress import Progress, StagedProgress, silent

if TYPE_CHECKING:
    from glocal.companions.sparse.word_weights import Contribution
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.data.corpus import Corpus
    from glocal.encoders.static import StaticVectors
    from glocal.vocabulary.label_change import LabelChange
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import LabelTable


def companions_of(recipe: Recipe) -> list[type[Companion]]:
    """Return the companions that a recipe's experts read; the others are not imported."""
    kinds: list[type[Companion]] = []
    if recipe.uses_teacher:
        from glocal.companions.teacher.teacher_model import Teacher

        kinds.append(Teacher)
    if SPARSE_EXPERT in recipe.experts:
        from glocal.companions.sparse.sparse_companion import SparseCompanion

        kinds.append(SparseCompanion)
    return kinds


def word_vectors(
    recipe: Recipe,
    train: Corpus,
    table: LabelTable | None = None,
    *,
    progress: Progress | None = None,
) -> StaticVectors | None:
    """Build the word vectors that a companion or the reader uses; None where none are used."""
    used = any(kind.reads_word_vectors for kind in companions_of(recipe))
    if not used and not recipe.reads_word_vectors:
        return None
    from glocal.encoders.static import build_vectors

    names = [] if table is None else [*table.names, *table.descriptions]
    return build_vectors(recipe.teacher, recipe.encoder, train, extra=names, progress=progress)


class Companions(tuple[Companion, ...]):
    """The fitted companions of one model."""

    __slots__ = ()

    @classmethod
    def fit(
        cls,
        inputs: FitInputs,
        *,
        kinds: Iterable[type[Companion]] | None = None,
        in_turn: Callable[[], AbstractContextManager[None]] = nullcontext,
        progress: StagedProgress = silent,
    ) -> Companions:
        """Fit companions one after another.

        Args:
            inputs: Training texts, labels and settings.
            kinds: The companions; by default all that the recipe's experts read.
            in_turn: Returns the context for those that one process fits, and others find in the
                cache.
            progress: Returns the progress callback of a stage.
        """
        kinds = companions_of(inputs.recipe) if kinds is None else kinds
        fitted = []
        for kind in kinds:
            with nullcontext() if kind.fitted_together else in_turn():
                fitted.append(kind.fit(inputs, progress=progress))
        return cls(fitted)

    def placed(self, device: str) -> Companions:
        """Return the companions as they compute features on a device."""
        return Companions(companion.placed(device) for companion in self)

    def features(
        self,
        corpus: Corpus,
        *,
        allowed: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Arrays:
        """Return what batches of a corpus's documents carry; see `Companion.features`."""
        return _merged(c.features(corpus, allowed=allowed, progress=progress) for c in self)

    def training_features(self, train: Corpus, *, progress: Progress | None = None) -> Arrays:
        """Return what batches of training texts carry."""
        return _merged(c.training_features(train, progress=progress) for c in self)

    def features_for_texts(
        self, texts: Sequence[str], *, allowed: np.ndarray | None = None
    ) -> Arrays:
        """Return what batches of texts carry."""
        return _merged(c.features_for_texts(texts, allowed=allowed) for c in self)

    def fingerprints(self) -> list[str]:
        """Identify everything that training depends on."""
        return [name for c in self if (name := c.fingerprint()) is not None]

    def label_vectors(self, *, blank: bool = False) -> np.ndarray | None:
        """Return the label vectors of the first companion that offers any."""
        found = (c.label_vectors(blank=blank) for c in self)
        return next((vectors for vectors in found if vectors is not None), None)

    def word_contributions(self, text: str, label: int) -> list[Contribution]:
        """Return the words of a text that speak for a label or against it."""
        return [part for c in self for part in c.word_contributions(text, label)]

    def similar_texts(self, text: str) -> TeacherExplanation | None:
        """Return similar training texts and their labels; None where no companion finds any."""
        found = (c.similar_texts(text) for c in self)
        return next((explanation for explanation in found if explanation is not None), None)

    def with_labels(self, change: LabelChange) -> Companions:
        """Return the companions for other labels; see `Companion.with_labels`."""
        return Companions(companion.with_labels(change) for companion in self)

    def save(self, folder: Path) -> None:
        """Write each companion into its folder inside a model directory."""
        for companion in self:
            companion.save(folder / companion.folder)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, labels: LabelSpace) -> Companions:
        """Read the companions of a recipe from a model directory."""
        return cls(kind.load(folder / kind.folder, labels) for kind in companions_of(recipe))


def _merged(arrays: Iterable[Arrays]) -> Arrays:
    return {name: values for found in arrays for name, values in found.items()}
