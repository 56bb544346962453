"""`glocal distill`: train a small model on the probabilities of a large one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file, read_labels_file
from glocal.cli.parameters import argument, option
from glocal.cli.train import show_result

app = typer.Typer()


@app.command()
@options.reads_files
def distill(
    paths: Annotated[
        list[str],
        argument(
            "Teacher's model directory, or several that vote, and its training texts.",
            metavar="TEACHER… FILE",
        ),
    ],
    *,
    out: Annotated[Path, option("Model directory to write.", "--out", "-o", metavar="DIR")],
    recipe: options.RecipeName = "balanced",
    override: options.Override = None,
    texts: Annotated[
        list[str] | None,
        option("Further texts, whose labels are not read; may be repeated.", metavar="FILE"),
    ] = None,
    weight: Annotated[
        float, option("Weight of the teacher beside the gold labels.", min=0, max=1)
    ] = 0.5,
    top: Annotated[int, option("Teacher's labels kept for each text.", min=1)] = 50,
    dev: options.Dev = None,
    labels: options.Labels = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Train a small student on the probabilities of a large teacher.

    The teacher scores the training texts, and any further texts given with --texts, once; its
    scores are cached. The student learns from a mix of them and the gold labels.
    """
    from glocal.cli.training_progress import TrainingProgress
    from glocal.config import load_recipe
    from glocal.distillation.student import distill as train_student
    from glocal.predict.ensemble import ensemble_labels

    teachers, file = options.split_models_and_file(paths, command="distill")
    settings = load_recipe(recipe, override or ())
    ensemble_labels(teachers)  # before the texts, so that a missing teacher is reported at once
    corpus = read_file(file, require_labels=True, **reading)
    with TrainingProgress() as progress:
        result = train_student(
            teachers,
            settings,
            corpus,
            out=out,
            texts=read_file(*texts, **reading) if texts else None,
            weight=weight,
            top=top,
            dev=read_file(dev, **reading) if dev else None,
            label_table=read_labels_file(labels),
            resume=resume,
            overwrite=overwrite,
            device=device,
            listener=progress,
        )
    show_result(result)
    console.note(f"\nNext:\n  glocal eval {teachers[0]} {out} test.jsonl")
