"""`glocal tune`: search the settings of a recipe on dev."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file, read_labels_file
from glocal.cli.parameters import option
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.tune.trials import Trials

app = typer.Typer()


@app.command()
@options.reads_files
def tune(
    files: options.TrainFiles,
    *,
    dev: Annotated[str, option("Texts to compare settings on.", metavar="FILE")],
    out: Annotated[Path, option("Recipe to write.", "--out", "-o", metavar="RECIPE.toml")],
    recipe: options.RecipeName = "fast",
    override: options.Override = None,
    budget: Annotated[str | None, option("Time limit, such as 10m or 2h.", metavar="TIME")] = None,
    trials: Annotated[
        int | None, option("Most trials of each stage.", min=1, show_default="no limit")
    ] = None,
    labels: options.Labels = None,
    engine: Annotated[
        str, option("optuna, or ray for several of its trials at once on a Ray cluster.")
    ] = "optuna",
    address: options.Address = None,
    workers: options.Workers = None,
    overwrite: Annotated[bool, option("Forget earlier trials.", "--overwrite")] = False,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Search for the best settings of a recipe on dev.

    First the learning rates of a network are searched, if the recipe has one, then the settings of
    the words model, for which the network is not trained again. The same command continues an
    earlier search; its trials are in a folder beside the recipe.

    With --engine ray several trials run at once on a Ray cluster whose machines share the folder.
    """
    from glocal.cli.training_progress import TrainingProgress
    from glocal.config.durations import parse_duration
    from glocal.tune.tuning import tune_recipe

    if out.suffix != ".toml":
        raise ConfigError(f"--out {out}: expected the path of a recipe, which ends in .toml")
    seconds = parse_duration(budget) if budget else None
    on_ray = engine == "ray"
    if address is not None and not on_ray:
        raise ConfigError("--address is the address of a Ray cluster; add --engine ray")
    with TrainingProgress() as progress, contextlib.ExitStack() as held:
        trials_in: Callable[..., Trials] | None = None
        if on_ray:
            from glocal.cluster.ray_tuning import trials_on_ray

            on_gpus = 1 if device.startswith("cuda") else 0
            place = trials_on_ray(address, workers=workers, gpus=on_gpus)
            trials_in = held.enter_context(place)
        table = read_labels_file(labels)
        result = tune_recipe(
            recipe,
            read_file(*files, known=[table], require_labels=True, **reading),
            read_file(dev, known=[table], require_labels=True, **reading),
            out=out,
            overrides=override or (),
            budget=seconds,
            trials=trials,
            label_table=table,
            engine="optuna" if on_ray else engine,
            overwrite=overwrite,
            device=device,
            listener=progress,
            trials_in=trials_in,
        )
    console.show(result.to_dict())
    console.note(
        f"Wrote {out} after {result.n_trials} trials: {result.metric} on dev "
        f"{100 * result.before:.2f} before, {100 * result.after:.2f} after."
    )
    console.note(
        f"\nNext:\n  glocal train {' '.join(files)} --dev {dev} --recipe {out} --out model"
    )
