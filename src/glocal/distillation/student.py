"""Train a student on its teacher's probabilities and the gold labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glocal.config import Recipe
from glocal.data.corpus import Corpus
from glocal.distillation.teacher_scores import TeacherScorer
from glocal.errors import ConfigError
from glocal.train.context import throttled_progress
from glocal.train.gather import build_label_space, check_recipe
from glocal.train.listener import TrainListener
from glocal.train.run import FitResult, check_target, fit
from glocal.train.soft_targets import SoftTargets, check_same_labels, check_student
from glocal.vocabulary.label_table import LabelTable

_BATCH = 128  # texts that the teacher reads at once


def distill(
    teachers: Sequence[str | Path],
    recipe: Recipe,
    train: Corpus,
    *,
    out: str | Path,
    texts: Corpus | None = None,
    weight: float = 0.5,
    top: int = 50,
    dev: Corpus | None = None,
    label_table: LabelTable | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    listener: TrainListener | None = None,
) -> FitResult:
    """Train a student on the probabilities of a teacher, and write its model directory.

    The teacher's probabilities are computed once and cached. The student's words model, where its
    recipe has one, learns from the gold labels alone.

    Args:
        teachers: The teacher's model directory, or several that vote.
        recipe: The settings of the student.
        train: Texts with labels, as the teacher was trained on.
        out: The model directory to write.
        texts: Further texts; their labels, if any, are not read.
        weight: Weight of the teacher beside the gold labels, from 0 to 1; texts without labels
            have the teacher's probabilities alone.
        top: The teacher's labels kept for each text; the others count as improbable.
        dev: Texts that select the best weights and the calibration.
        label_table: Names, descriptions and parents of labels.
        resume: Continue an unfinished run.
        overwrite: Replace an existing model or unfinished run.
        device: `auto`, `cpu` or `cuda`.
        listener: Receives progress events.

    Raises:
        ConfigError: Teacher and student have different labels, or the student cannot learn
            probabilities.
        ModelError: The teacher cannot be read, or something else is at `out`.

    Example:
        >>> from glocal import distill, load_recipe, read_corpus
        >>> train = read_corpus("train.jsonl")
        >>> tiny = load_recipe("balanced", ["encoder.name=random:tiny", "train.epochs=1"])
        >>> distill(["model/"], tiny, train, out="student/").path.name
        'student'
    """
    if not 0 <= weight <= 1:
        raise ConfigError(f"the teacher's weight must be between 0 and 1, not {weight}")
    if top < 1:
        raise ConfigError(f"at least 1 label per text must be kept of the teacher, not {top}")
    check_recipe(recipe, label_table)
    check_student(recipe)
    check_target(Path(out), resume=resume, overwrite=overwrite)
    teacher = TeacherScorer(teachers, device=device, batch_size=_BATCH)
    check_same_labels(teacher.labels.ids, build_label_space(recipe, train, label_table))
    shown, parts = listener or TrainListener(), []
    for corpus, what in ((train, "training texts"), (texts, "texts without labels")):
        if corpus is not None:
            progress = throttled_progress(shown)(f"{what} scored by the teacher")
            parts.append(teacher.best_labels(corpus, top=top, progress=progress))
            shown.on_message(f"{len(corpus):,} {what} scored by the teacher")
    best, scores = (np.concatenate(some) for some in zip(*parts, strict=True))
    facts = {
        "teachers": [path.name for path in teacher.paths],
        "weight": weight,
        "top": top,
        "unlabelled_texts": 0 if texts is None else len(texts),
    }
    soft = SoftTargets(teacher.labels.ids, best, scores, texts, weight, facts)
    del teacher  # gone from the device before the student trains
    return fit(
        recipe,
        train,
        out=out,
        dev=dev,
        label_table=label_table,
        resume=resume,
        overwrite=overwrite,
        device=device,
        listener=listener,
        soft=soft,
    )
