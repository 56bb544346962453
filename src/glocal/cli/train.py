"""`glocal train`: train a model on files of labelled texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file, read_files
from glocal.cli.options import Device, Labels, Override, Reading, reads_files
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.train.run import FitResult

__all__ = ["app", "summary"]

app = typer.Typer()


@app.command()
@reads_files
def train(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Training texts with labels.")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the model directory goes.")],
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="A recipe's name, or a path ending in .toml.")
    ] = "glocalxml",
    override: Override = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Time the run may take, such as 90s, 10m or 2h; fewer epochs if need be.",
            show_default="any",
        ),
    ] = "",
    dev: Annotated[
        str | None, typer.Option(help="Texts to choose the best checkpoint and calibrate on.")
    ] = None,
    labels: Labels = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted run of the same --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is already at --out.")
    ] = False,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Train a model on labelled texts.

    FILE is JSONL, CSV, TSV, Parquet, one of the XMC layouts, any of them gzipped, or the name of a
    built-in set such as icd10cm:train. Several files make one training set.

    The recipes fast, balanced and best are presets; auto chooses one of them by the data, the
    machine and --budget, and says what it chose.
    """
    from glocal.config import load_recipe
    from glocal.config.expert_names import check_expert_names

    # Before the data, which takes longer to read.
    settings = load_recipe(recipe, [*(override or ()), *_budget_override(budget, override or ())])
    check_expert_names(settings.experts)
    corpus = read_files(files, require_labels=True, **reading)
    dev_corpus = read_file(dev, **reading) if dev else None
    label_table = _label_table(labels)

    from glocal.cli.training_progress import TrainingProgress
    from glocal.train.run import fit

    with TrainingProgress() as progress:
        result = fit(
            settings,
            corpus,
            out=out,
            dev=dev_corpus,
            label_table=label_table,
            resume=resume,
            overwrite=overwrite,
            device=device,
            listener=progress,
        )
    console.note(summary(result))
    console.note(
        f"\nNext:\n  glocal eval {out} test.jsonl\n  glocal predict {out} texts.jsonl -k 5\n"
        f'  glocal explain {out} "a text to tag"'
    )


def _budget_override(budget: str, overrides: Sequence[str]) -> list[str]:
    """The setting behind `--budget`, checked.

    Raises:
        ConfigError: When it is not a time, or the epochs it would decide are given as well.
    """
    from glocal.train.budget import parse_budget

    if not budget:
        return []
    parse_budget(budget)
    given = [text for text in overrides if text.partition("=")[0].strip() == "train.epochs"]
    if given:
        raise ConfigError(
            f"--budget {budget} decides the number of epochs, and so does -s {given[0]}; "
            "leave one of them out"
        )
    return [f'train.budget="{budget}"']


def _label_table(path: str | None) -> Any:
    from glocal.data.label_table import read_label_table

    return None if path is None else read_label_table(path)


def summary(result: FitResult) -> str:
    """Return a short summary of a finished training."""
    from glocal.cli.training_progress import format_scores, format_seconds

    scores = format_scores(result.metrics.get("dev", {}))
    lines = [f"Saved {result.path} after {format_seconds(result.seconds)}."]
    return "\n".join([*lines, f"On dev: {scores}."] if scores else lines)
