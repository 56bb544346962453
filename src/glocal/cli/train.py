"""`glocal train`: train a model on files of labelled texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console
from glocal.cli.corpora import advise_on_labels, read_file, read_labels_file
from glocal.cli.options import AsJson, Device, Labels, Override, Reading, RecipeName, reads_files
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.train.run import FitResult

app = typer.Typer()


@app.command()
@reads_files
def train(
    files: Annotated[list[str], argument("Training texts with labels.", metavar="FILE")],
    *,
    out: Annotated[Path, option("Model directory to write.", "--out", "-o", metavar="DIR")],
    recipe: RecipeName = "auto",
    override: Override = None,
    seed: Annotated[int | None, option("Random seed.", min=0, show_default="the recipe's")] = None,
    epochs: Annotated[
        int | None, option("Passes over the training texts.", min=0, show_default="the recipe's")
    ] = None,
    budget: Annotated[
        str | None,
        option(
            "Time limit, such as 90s, 10m or 2h; trains fewer epochs to meet it.", metavar="TIME"
        ),
    ] = None,
    dev: Annotated[
        str | None, option("Texts to choose the best weights and calibrate on.", metavar="FILE")
    ] = None,
    labels: Labels = None,
    resume: Annotated[bool, option("Continue the interrupted run at --out.", "--resume")] = False,
    overwrite: Annotated[
        bool, option("Replace the model or unfinished run at --out.", "--overwrite")
    ] = False,
    as_json: AsJson = False,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Train a model on labelled texts.

    FILE is JSON lines, CSV, TSV, Parquet, Feather, Annif, fastText or one of the XMC layouts, also
    compressed (gz, bz2, xz, zst), or the name of a built-in set such as icd10cm:train. Several
    files, or a pattern such as 'part-*.jsonl', are joined into one training set.

    The recipes fast, balanced and best are presets; auto chooses one of them for the data, the
    machine and --budget, and prints its choice.
    """
    from glocal.config import load_recipe
    from glocal.config.resolve import check
    from glocal.encoders.read_facts import read_encoder_facts

    # The settings are checked before the data, which takes longer to read.
    plain = {"train.seed": seed, "train.epochs": epochs, "train.budget": budget}
    settings = load_recipe(recipe, _overrides(override or (), plain))
    check(settings, read_encoder_facts, has_label_table=labels is not None)

    from glocal.train.run import check_target, fit

    check_target(out, resume=resume, overwrite=overwrite)
    corpus = read_file(*files, require_labels=True, **reading)
    dev_corpus = read_file(dev, **reading) if dev else None
    label_table = read_labels_file(labels)
    advise_on_labels(corpus, has_label_table=label_table is not None)

    from glocal.cli.training_progress import TrainingProgress

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
    if as_json:
        document = {"path": str(out), "seconds": result.seconds, "metrics": result.metrics}
        console.print_json(document)
    console.note(summary(result))
    console.note(
        f"\nNext:\n  glocal eval {out} test.jsonl\n  glocal predict {out} texts.jsonl -k 5\n"
        f'  glocal explain {out} "a text to tag"'
    )


def _overrides(overrides: Sequence[str], plain: Mapping[str, object]) -> list[str]:
    """Return the overrides with the settings that have an option of their own.

    Raises:
        ConfigError: A setting is given twice, or a time limit together with the epochs.
    """
    from glocal.config.durations import parse_duration

    given = {text.partition("=")[0].strip(): f"-s {text}" for text in overrides}
    found = list(overrides)
    for key, value in plain.items():
        if value is None:
            continue
        option = f"--{key.rpartition('.')[2]} {value}"
        if key in given:
            raise ConfigError(f"{option} and {given[key]} set the same; leave one of them out")
        given[key] = option
        found.append(f"{key}={json.dumps(value)}")
    if plain.get("train.budget") is not None:
        parse_duration(str(plain["train.budget"]))
        if "train.epochs" in given:
            raise ConfigError(
                f"{given['train.budget']} decides the number of epochs, and so does "
                f"{given['train.epochs']}; leave one of them out"
            )
    return found


def summary(result: FitResult) -> str:
    """Return a short summary of a finished training."""
    from glocal.cli.training_progress import format_scores, format_seconds

    metrics = result.metrics
    lines = [f"Saved {result.path} after {format_seconds(result.seconds)}."]
    dev, held_out = metrics.get("dev", {}), metrics.get("held_out", {})
    if dev:
        lines.append(f"On dev: {format_scores(dev)}.")
    elif held_out:
        texts = f"{metrics['held_out_texts']:,} held-out training texts"
        lines.append(f"On {texts}: {format_scores(held_out)}.")
    shown = [e for e in metrics.get("evaluations", ()) if e["step"] == metrics.get("best_step")]
    if shown and format_scores(shown[-1]["scores"]) != format_scores(dev or held_out):
        before = format_scores(shown[-1]["scores"])
        lines.append(
            f"These weights had {before} in training, where experts count alike; their weights and "
            "label frequencies, fitted at the end, make the difference."
        )
    return "\n".join(lines)
