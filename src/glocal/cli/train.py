"""`glocal train`: train a model on files of labelled texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.corpora import advise_on_labels, read_file, read_labels_file
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError
from glocal.table import Table, columns

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.train.run import FitResult

app = typer.Typer()


@app.command()
@options.reads_files
def train(
    files: Annotated[
        list[str] | None, argument("Training texts with labels.", metavar="FILE")
    ] = None,
    *,
    out: Annotated[
        Path | None,
        option(
            "Model directory to write.",
            "--out",
            "-o",
            metavar="DIR",
            show_default="the model of --from",
        ),
    ] = None,
    recipe: options.RecipeName = "auto",
    override: options.Override = None,
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
    dev: options.Dev = None,
    labels: options.Labels = None,
    start: Annotated[
        Path | None, option("Continue from this model with --add.", "--from", metavar="MODEL")
    ] = None,
    add: Annotated[
        list[str] | None,
        option("Corrections and new texts to learn; may be repeated.", metavar="FILE"),
    ] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    shard_labels: Annotated[
        bool,
        option("Give each process a part of the labels.", "--shard-labels"),
    ] = False,
    shard_encoder: Annotated[
        bool,
        option("Give each process a part of the encoder's weights.", "--shard-encoder"),
    ] = False,
    engine: options.Engine = "processes",
    address: options.Address = None,
    workers: options.Workers = None,
    reading: options.Reading,
) -> None:
    """Train a model on labelled texts.

    FILE is JSON lines, CSV, TSV, Parquet, Feather, Annif, fastText or one of the XMC layouts, also
    compressed (gz, bz2, xz, zst), or the name of a built-in set such as icd10cm:train. Several
    files, or a pattern such as 'part-*.jsonl', are joined into one training set.

    The recipes fast, balanced, large and best are presets; auto chooses fast or balanced for the
    data, the machine and --budget, and prints its choice.

    With --from and --add a trained model learns further texts in a fraction of the time. FILE is
    then the texts it was trained on, or some of them, so that it forgets nothing; a model of words
    alone (fast) needs none.

    Several processes train together under torchrun, or with --engine ray on a Ray cluster, where
    lost ones are replaced and the run resumes; --out must then be on a shared file system.
    """
    if start is not None or add:
        given = {
            "--recipe": recipe != "auto", "-s": override, "--seed": seed is not None,
            "--epochs": epochs is not None, "--budget": budget, "--resume": resume,
        }  # fmt: skip
        _check_further(start, add, [name for name, value in given.items() if value])
        from glocal.storage.model_directory import read_labels

        assert start is not None
        assert add
        label_table = read_labels_file(labels)
        known = [label_table, read_labels(start)]
        continue_from(
            start,
            read_file(*add, known=known, require_labels=True, **reading),
            out=out,
            train=read_file(*files, known=known, require_labels=True, **reading) if files else None,
            dev=read_file(dev, known=known, **reading) if dev else None,
            label_table=label_table,
            overwrite=overwrite,
            device=device,
        )
        return
    if not files or out is None:
        raise ConfigError(
            f"{'training texts (FILE)' if not files else 'a place for the model (--out)'} missing"
        )
    from glocal.config import load_recipe
    from glocal.config.resolve import check
    from glocal.encoders.read_facts import read_encoder_facts

    # The settings are checked before the data, which takes longer to read.
    plain = {"train.seed": seed, "train.epochs": epochs, "train.budget": budget}
    settings = load_recipe(recipe, _overrides(override or (), plain))
    check(settings, read_encoder_facts, has_label_table=labels is not None)

    from glocal.train.run import check_target, fit

    train_on: Callable[..., FitResult] = fit
    if options.uses_ray(engine, address):
        from glocal.cluster.ray_training import RayTrainer

        on_gpus = device.startswith("cuda")
        train_on = RayTrainer(
            address,
            workers or 1,
            gpus=on_gpus,
            shard_labels=shard_labels,
            shard_encoder=shard_encoder,
        )
    elif shard_labels or shard_encoder:
        from glocal.cluster.sharded_training import fit_sharded

        train_on = partial(fit_sharded, labels=shard_labels, encoder=shard_encoder)
    check_target(out, resume=resume, overwrite=overwrite)
    label_table = read_labels_file(labels)
    corpus = read_file(*files, known=[label_table], require_labels=True, **reading)
    dev_corpus = read_file(dev, known=[label_table], **reading) if dev else None
    advise_on_labels(corpus, has_label_table=label_table is not None)

    from glocal.cli.training_progress import TrainingProgress

    with TrainingProgress() as progress:
        result = train_on(
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
    show_result(result)
    console.note(
        f"\nNext:\n  glocal eval {out} test.jsonl\n  glocal predict {out} texts.jsonl -k 5\n"
        f'  glocal explain {out} "a text to tag"'
    )


def _check_further(start: Path | None, add: Sequence[str] | None, others: Sequence[str]) -> None:
    """Refuse options that do not belong to a further training.

    Raises:
        ConfigError: An option is missing, or has no effect.
    """
    if start is None:
        raise ConfigError("--add needs the model to continue from; give it with --from")
    if not add:
        raise ConfigError("--from needs texts to learn; give them with --add")
    if others:
        raise ConfigError(
            f"{', '.join(others)}: a further training keeps the settings of the model; leave "
            f"{'them' if len(others) > 1 else 'it'} out"
        )


def continue_from(start: Path, texts: Corpus, **options: Any) -> None:
    """Continue the training of a model and report what changed."""
    from glocal.cli.training_progress import TrainingProgress, format_seconds
    from glocal.update.further_training import continue_training

    with TrainingProgress() as progress:
        result = continue_training(start, texts, listener=progress, **options)
    names = {"added": "texts added", "dev": "dev texts", "train": "training texts"}
    table = Table(
        "Labels among the five best, before and after",
        [
            *columns("text", "texts", "training texts of a label before"),
            *columns("count", "labels"),
            *columns("share", "before", "after"),
        ],
        [(names[c.texts], c.band, c.n_labels, c.before, c.after) for c in result.changes],
        note="texts added were learnt; give others with --dev to see how well it does on them",
    )
    console.show(result.to_dict(), [table])
    console.note(
        f"Saved {result.path} after {format_seconds(result.seconds)}: {result.n_texts:,} texts "
        f"learnt, {len(result.new_labels):,} new labels."
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


def show_result(result: FitResult) -> None:
    """Print a finished training, as JSON on request."""
    console.show({**vars(result), "path": str(result.path)})
    console.note(summary(result))


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
    return "\n".join(lines)
