"""`glocal ablate`: the variants of a table, trained under one budget and set side by side."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file
from glocal.cli.options import (
    AsJson,
    BatchSize,
    Device,
    Labels,
    Override,
    Reading,
    check_folder,
    reads_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glocal.analysis.ablation import Ablation
    from glocal.analysis.study import Outcome, StudyData, StudyView
    from glocal.analysis.tables import VariantTable
    from glocal.config import Recipe
    from glocal.train.listener import TrainListener

__all__ = ["app", "check_reuse", "finish", "read_study_data", "study_view"]

app = typer.Typer()

Train = Annotated[str, typer.Argument(metavar="TRAIN", help="Training texts with labels.")]
Dev = Annotated[str | None, typer.Option(help="Texts to choose each variant's best weights on.")]
Test = Annotated[
    str | None, typer.Option(help="Texts to measure on; without them --dev is measured on.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for models, results, tables and plots.")
]
RecipeName = Annotated[
    str | None, typer.Option("--recipe", "-r", help="Another recipe to start from.")
]
Parallel = Annotated[
    int, typer.Option(min=1, help="Variants trained side by side, where memory allows.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Train anew what was done before at --out.")
]
Reuse = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FOLDER",
        help="The --out of another study: what it finished with the same settings and texts is "
        "taken over; may be repeated.",
    ),
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Whether to draw plots.")]


@app.command()
@reads_files
def ablate(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table's name, or a path ending in .toml.")
    ],
    train: Train,
    *,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    labels: Labels = None,
    recipe: RecipeName = None,
    override: Override = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only the variant of this name; may be repeated.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Train every variant from each of these, such as 0,1,2; gives means."),
    ] = None,
    parallel: Parallel = 1,
    overwrite: Overwrite = False,
    reuse: Reuse = None,
    plots: Plots = True,
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Train the variants of a table and compare them.

    Tables: glocalxml-table3, glocalxml-table4, me-xml-table2, me-xml-table4, treaderxml-table3,
    aplc-figure4, aplc-figure5, or a TOML file. When the command is repeated, finished variants are
    skipped and interrupted ones resume.
    """
    from glocal.analysis.tables import (
        check_seeds,
        load_table,
        over_seeds,
        parse_seeds,
        resolve,
        seeded_name,
        select,
    )
    from glocal.config import parse_override
    from glocal.errors import ConfigError

    asked = load_table(table)
    chosen = [variant.name for variant in select(asked.variants, only or ())]
    variants, numbers = asked, []
    if seeds is not None:
        numbers = parse_seeds(seeds)
        if any(parse_override(text)[0] == "train.seed" for text in override or ()):
            raise ConfigError("--seeds and -s train.seed exclude each other; give one of them")
        variants = over_seeds(asked, numbers)
        chosen = [seeded_name(name, number) for name in chosen for number in numbers]
    recipes = resolve(variants, override or (), recipe=recipe)
    if numbers:
        check_seeds(recipes.values(), numbers)
    if plots:
        from glocal.analysis.plots import check_plots

        check_plots()
    check_folder(out)
    check_reuse(reuse or (), overwrite=overwrite)
    data = read_study_data(train, dev, test, reading, labels=labels)

    from glocal.analysis.study import Study

    study = Study(
        variants.variants,
        recipes,
        data,
        out=out,
        device=device,
        batch_size=batch_size,
        reuse=reuse or (),
    )
    try:
        study.run(chosen, parallel=parallel, overwrite=overwrite, view=study_view())
    finally:
        # Whatever happens to the rest, the tables show what is finished.
        outcomes = study.outcomes()
        result = _ablation(asked, recipes, data, outcomes, numbers)
        paths = result.write(out, plots=plots) if outcomes else []
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        for grid in result.short_grids():
            console.stdout().print(grid.rich())
    finish(paths, [outcome for outcome in outcomes if outcome.name in chosen])


def check_reuse(folders: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse folders without results, before texts are read, and what `--overwrite` contradicts."""
    from glocal.analysis.reuse import finished_elsewhere
    from glocal.errors import ConfigError

    if folders and overwrite:
        raise ConfigError("--overwrite trains anew, --reuse does not train; give one of them")
    finished_elsewhere(folders)


def _ablation(
    table: VariantTable,
    recipes: Mapping[str, Recipe],
    data: StudyData,
    outcomes: Sequence[Outcome],
    seeds: Sequence[int],
) -> Ablation:
    from glocal.analysis.ablation import Ablation
    from glocal.analysis.seeds import SeededAblation

    if seeds:
        return SeededAblation(table, recipes, data, outcomes, seeds)
    return Ablation(table, recipes, data, outcomes)


def read_study_data(
    train: str,
    dev: str | None,
    test: str | None,
    reading: dict[str, Any],
    *,
    labels: str | None = None,
) -> StudyData:
    """The texts of a study, and the names and parents of their labels."""
    from glocal.analysis.study import StudyData
    from glocal.data.label_table import read_label_table
    from glocal.errors import ConfigError, DataError

    if dev is None and test is None:  # before anything is read
        raise ConfigError("there is nothing to measure on: give --test, --dev or both")
    data = StudyData(
        read_file(train, require_labels=True, **reading),
        dev=read_file(dev, **reading) if dev else None,
        test=read_file(test, **reading) if test else None,
        label_table=read_label_table(labels) if labels else None,
    )
    measured = data.measured
    starts = range(0, len(measured), 4096)  # most often the first text has labels
    if not any(any(measured.labels(start, start + 4096)) for start in starts):
        raise DataError(
            f"none of its {len(measured)} texts has labels, so nothing can be measured on it; "
            "check its labels column",
            path=measured.source,
        )
    return data


def study_view() -> StudyView:
    """Shows which variant is at work, its training, and what came out."""
    from glocal.analysis.study import DONE, StudyView
    from glocal.cli.training_progress import TrainingProgress, format_scores

    class View(StudyView):
        """On stderr, like all progress."""

        def on_variant(self, number: int, total: int, title: str) -> None:
            """Which of how many."""
            console.note(f"[{number}/{total}] {title}")

        def on_outcome(self, outcome: Outcome, *, skipped: bool) -> None:
            """Its scores, or why it has none."""
            if outcome.status != DONE:
                console.warn(f"{outcome.name} failed: {outcome.error}")
                return
            scores = {name: outcome.score(name) or 0.0 for name in ("P@1", "P@3", "P@5")}
            done = "done before" if skipped else outcome.split
            console.note(f"{outcome.title}: {done}: {format_scores(scores)}")

        def on_taken_over(self, number: int, total: int) -> None:
            """How many need no training here."""
            console.note(f"{number} of {total} variants taken over from other studies")

        def training(self) -> contextlib.AbstractContextManager[TrainListener]:
            """A progress bar."""
            return TrainingProgress()

    return View()


def finish(paths: Sequence[Path], outcomes: Sequence[Outcome]) -> None:
    """Say where the files are; the exit status is 1 when a variant failed."""
    console.note("\n".join(["Written:", *(f"  {path}" for path in paths)]))
    failed = [outcome.name for outcome in outcomes if outcome.status == "failed"]
    if failed:
        console.error(
            f"{len(failed)} of {len(outcomes)} variants failed: {', '.join(failed)}\n"
            "What is finished is kept; repeat the command to try the rest again."
        )
        raise typer.Exit(1)
