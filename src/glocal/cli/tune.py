"""`glocal tune`: search the settings of a recipe on dev."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file, read_labels_file
from glocal.cli.options import AsJson, Device, Labels, Override, Reading, RecipeName, reads_files
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError

app = typer.Typer()


@app.command()
@reads_files
def tune(
    files: Annotated[list[str], argument("Training texts with labels.", metavar="FILE")],
    *,
    dev: Annotated[str, option("Texts to compare settings on.", metavar="FILE")],
    out: Annotated[Path, option("Recipe to write.", "--out", "-o", metavar="RECIPE.toml")],
    recipe: RecipeName = "fast",
    override: Override = None,
    budget: Annotated[str | None, option("Time limit, such as 10m or 2h.", metavar="TIME")] = None,
    trials: Annotated[
        int | None, option("Most trials of each stage.", min=1, show_default="no limit")
    ] = None,
    labels: Labels = None,
    engine: Annotated[str, option("Engine that proposes settings.", metavar="NAME")] = "optuna",
    overwrite: Annotated[bool, option("Forget earlier trials.", "--overwrite")] = False,
    as_json: AsJson = False,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Search for the best settings of a recipe on dev.

    First the learning rates of a network are searched, if the recipe has one, then the settings of
    the words model, for which the network is not trained again. The same command continues an
    earlier search; its trials are in a folder beside the recipe.
    """
    from glocal.cli.training_progress import TrainingProgress
    from glocal.config.durations import parse_duration
    from glocal.tune.tuning import tune_recipe

    if out.suffix != ".toml":
        raise ConfigError(f"--out {out}: expected the path of a recipe, which ends in .toml")
    seconds = parse_duration(budget) if budget else None
    with TrainingProgress() as progress:
        result = tune_recipe(
            recipe,
            read_file(*files, require_labels=True, **reading),
            read_file(dev, require_labels=True, **reading),
            out=out,
            overrides=override or (),
            budget=seconds,
            trials=trials,
            label_table=read_labels_file(labels),
            engine=engine,
            overwrite=overwrite,
            device=device,
            listener=progress,
        )
    if as_json:
        console.print_json(result.to_dict())
    console.note(
        f"Wrote {out} after {result.n_trials} trials: {result.metric} on dev "
        f"{100 * result.before:.2f} before, {100 * result.after:.2f} after."
    )
    console.note(
        f"\nNext:\n  glocal train {' '.join(files)} --dev {dev} --recipe {out} --out model"
    )
