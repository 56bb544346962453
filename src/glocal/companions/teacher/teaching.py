"""The teacher at a system's side: who needs one, what it puts into batches, where it is stored.

A teacher looks up similar training texts and gives the labels they vote for. Systems see
 rows of fixed width (`scope`, `scope_weight`), the same in training and prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glocal.companions.feature_names import SCOPE, SCOPE_WEIGHT
from glocal.config import Recipe
from glocal.config.expert_names import TEACHER
from glocal.config.reader_configurations import CONFIGURATIONS
from glocal.errors import DataError
from glocal.progress import Progress

if TYPE_CHECKING:
    from glocal.companions.teacher.teacher_model import Scopes, Teacher
    from glocal.data.corpus import Corpus
    from glocal.data.label_table import LabelTable
    from glocal.encoders.static import StaticVectors
    from glocal.vocabulary.label_space import LabelSpace

__all__ = ["Teaching", "teach", "uses_teacher", "word_vectors"]


def uses_teacher(recipe: Recipe) -> bool:
    """Whether an expert of the recipe sees a teacher."""
    taught = CONFIGURATIONS[recipe.reader.configuration].teacher
    return any(e == TEACHER or (taught and e.startswith("R-")) for e in recipe.experts)


def word_vectors(
    recipe: Recipe,
    train: Corpus,
    table: LabelTable | None = None,
    *,
    progress: Progress | None = None,
) -> StaticVectors | None:
    """The word vectors a teacher compares texts by, or the text is read as; else none."""
    if not uses_teacher(recipe) and recipe.reader.encode != "static":
        return None
    from glocal.encoders.static import build_vectors

    names = [] if table is None else [*table.names, *table.descriptions]
    return build_vectors(recipe.teacher, recipe.encoder, train, extra=names, progress=progress)


def teach(
    recipe: Recipe,
    train: Corpus,
    labels: LabelSpace,
    table: LabelTable | None,
    vectors: StaticVectors | None,
    *,
    progress: Progress | None = None,
) -> Teaching | None:
    """A teacher of the training texts, where the recipe uses one.

    Args:
        recipe: The settings.
        train: The texts it looks similar ones up in.
        labels: The label space.
        table: Names and parents of labels.
        vectors: From `word_vectors`.
        progress: Called with (done, total).
    """
    if not uses_teacher(recipe):
        return None
    from glocal.companions.teacher.teacher_model import Teacher

    assert vectors is not None, "a teacher compares texts by word vectors"
    teacher = Teacher.fit(train, labels, table, recipe.teacher, vectors, progress=progress)
    return Teaching(teacher, vectors)


@dataclass(frozen=True)
class Teaching:
    """A teacher and the word vectors it reads with."""

    teacher: Teacher
    vectors: StaticVectors

    def rows(self, corpus: Corpus, *, progress: Progress | None = None) -> dict[str, np.ndarray]:
        """What goes into batches of a corpus's documents; cached on disk, memory-mapped."""
        return _rows(self.teacher.scopes(corpus, progress=progress))

    def training_rows(
        self, train: Corpus, *, progress: Progress | None = None
    ) -> dict[str, np.ndarray]:
        """The rows of the training texts.

        Raises:
            DataError: When no text has a similar one, so that there is nothing to learn from.
        """
        rows = self.rows(train, progress=progress)
        if not (rows[SCOPE] >= 0).any():
            raise DataError(
                f"none of the {len(train):,} training texts has another one like it, so a teacher "
                "has nothing to say; its word vectors may not know the words of these texts: set "
                "teacher.vectors=corpus, or leave the teacher out (reader.configuration=7, experts "
                "without T)",
                path=train.source,
            )
        return rows

    def rows_of(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """What goes into batches of texts."""
        return _rows(self.teacher.scopes_of(texts))

    def label_vectors(self) -> np.ndarray:
        """The mean word vector of each of the teacher's labels, (T, D)."""
        return self.vectors.embed(self.teacher.descriptions)

    def blank_vectors(self) -> np.ndarray:
        """Zeros of the same shape, for a system whose weights are to be loaded."""
        width = self.vectors.token_matrix().shape[1]
        return np.zeros((len(self.teacher.label_ids), width), dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Write the teacher and its vectors into a folder of their own."""
        self.teacher.save(folder)
        self.vectors.save(folder / "vectors")

    @classmethod
    def load(cls, folder: Path, labels: LabelSpace) -> Teaching:
        """Read what `save` wrote."""
        from glocal.companions.teacher.teacher_model import Teacher
        from glocal.encoders.static import load_vectors

        vectors = load_vectors(folder / "vectors")
        return cls(Teacher.load(folder, labels, vectors), vectors)


def _rows(scopes: Scopes) -> dict[str, np.ndarray]:
    return {SCOPE: scopes.labels, SCOPE_WEIGHT: scopes.weights}
