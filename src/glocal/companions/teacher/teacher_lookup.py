"""A teacher without a model: built from training texts alone."""

from __future__ import annotations

from glocal.companions.companion import FitInputs
from glocal.companions.teacher.teacher_model import Teacher
from glocal.config import Recipe
from glocal.data.corpus import Corpus
from glocal.encoders.static import build_vectors
from glocal.progress import StagedProgress
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable


def teacher_from_texts(
    recipe: Recipe, train: Corpus, table: LabelTable | None, *, progress: StagedProgress
) -> tuple[Teacher, LabelSpace]:
    """Build a teacher and the label space it suggests labels from.

    Args:
        recipe: The settings of the teacher, the word vectors and the labels.
        train: Texts with labels.
        table: Names, descriptions and parents of labels.
        progress: Receives the progress of each stage.
    """
    labels = LabelSpace.build(train, table=table, min_count=recipe.labels.min_count)
    names = [] if table is None else [*table.names, *table.descriptions]
    vectors = build_vectors(
        recipe.teacher, recipe.encoder, train, extra=names, progress=progress("word vectors")
    )
    inputs = FitInputs(recipe, train, labels, table, vectors)
    return Teacher.fit(inputs, progress=progress), labels
