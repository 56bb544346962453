"""What the commands share that train several models on one data set: options, texts, progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file

if TYPE_CHECKING:
    from glocal.lab.grid import Grid
    from glocal.lab.study import Outcome, Study, StudyData, StudyView
    from glocal.train.listener import TrainListener

__all__ = ["check_reuse", "finish", "read_study_data", "run_study"]

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


class StudyResult(Protocol):
    """What came out of a study, to be shown and written."""

    def short_grids(self) -> Sequence[Grid]:
        """What fits a terminal."""

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write tables and plots into a folder; gives their paths."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""


def check_reuse(folders: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse folders without results, before texts are read, and what `--overwrite` contradicts."""
    from glocal.errors import ConfigError
    from glocal.lab.reuse import finished_elsewhere

    if folders and overwrite:
        raise ConfigError("--overwrite trains anew, --reuse does not train; give one of them")
    finished_elsewhere(folders)


def read_study_data(
    train: str,
    dev: str | None,
    test: str | None,
    reading: dict[str, Any],
    *,
    labels: str | None = None,
) -> StudyData:
    """The texts of a study, and the names and parents of their labels."""
    from glocal.data.label_table import read_label_table
    from glocal.errors import ConfigError, DataError
    from glocal.lab.study import StudyData

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


def _view() -> StudyView:
    """Shows which variant is at work, its training, and what came out."""
    from glocal.cli.training_progress import TrainingProgress, format_scores
    from glocal.lab.study import DONE, StudyView

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


def run_study(
    study: Study,
    chosen: Sequence[str],
    result_of: Callable[[Sequence[Outcome]], StudyResult],
    *,
    out: Path,
    parallel: int,
    overwrite: bool,
    plots: bool,
    as_json: bool,
) -> None:
    """Train and measure what is not finished, show and write what is.

    Args:
        study: The variants.
        chosen: Names of those to train; none: all.
        result_of: Makes a result of the outcomes known.
        out: The folder for tables and plots.
        parallel: Variants trained side by side.
        overwrite: Whether to train anew.
        plots: Whether to draw plots.
        as_json: Print JSON instead of tables.
    """
    try:
        study.run(chosen, parallel=parallel, overwrite=overwrite, view=_view())
    finally:
        # Whatever happens to the rest, tables and plots show what is finished.
        outcomes = study.outcomes()
        result = result_of(outcomes)
        paths = result.write(out, plots=plots) if outcomes else []
    if as_json:
        console.print_json(result.to_dict())
    else:
        for grid in result.short_grids():
            console.stdout().print(grid.rich())
    finish(paths, [outcome for outcome in outcomes if not chosen or outcome.name in chosen])


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
