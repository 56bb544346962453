"""Options, texts and progress of the commands that train several models on one data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from glocal.config import Recipe
    from glocal.lab.analysis import Analysis
    from glocal.lab.experiment.jobs import Result, Splits
    from glocal.lab.experiment.runner import RunView
    from glocal.lab.variant_tables import VariantTable

Train = Annotated[str, argument("Training texts with labels.", metavar="TRAIN")]
Plots = Annotated[bool, option("Whether to draw plots.", "--plots/--no-plots")]


@dataclass(frozen=True, kw_only=True)
class Study:
    """The options that all studies share."""

    out: Annotated[Path, option("Folder for models, results, tables and plots.", "--out", "-o")]
    dev: Annotated[str | None, option("Texts to choose each variant's best weights on.")] = None
    test: Annotated[str | None, option("Texts to measure on [default: the dev texts]")] = None
    recipe: Annotated[str | None, option("Another recipe to start from.", "--recipe", "-r")] = None
    override: options.Override = None
    parallel: Annotated[int, option("Variants trained at the same time.", min=1)] = 1
    overwrite: Annotated[
        bool, option("Train again what was done before at --out.", "--overwrite")
    ] = False
    reuse: Annotated[
        list[Path] | None,
        option(
            "Copy results of the same settings and texts from the --out of another study; "
            "may be repeated.",
            metavar="FOLDER",
        ),
    ] = None
    plots: Plots = True
    batch_size: options.BatchSize = 64
    device: options.Device = "auto"

    def check(self) -> None:
        """Check the options, before texts are read."""
        from glocal.lab.experiment.runner import finished_in

        prepare_plots(self.out, plots=self.plots)
        if self.reuse and self.overwrite:
            raise ConfigError("--overwrite trains again, --reuse does not train; give one of them")
        finished_in(self.reuse or ())

    def run(
        self,
        table: VariantTable,
        recipes: dict[str, Recipe],
        splits: Splits,
        analyse: Callable[[Sequence[Result]], Analysis],
        *,
        chosen: Sequence[str],
        folder: Path,
        divergence: bool = False,
    ) -> None:
        """Train and measure what is not finished; show and write everything that is.

        Args:
            table: The variants.
            recipes: Recipe of each variant.
            splits: The texts.
            analyse: Makes an analysis of the results there are.
            chosen: Names of the variants to train; all when empty.
            folder: Where models and results go.
            divergence: Also measure how much the two experts of a model differ.
        """
        from glocal.lab.experiment.jobs import Conditions
        from glocal.lab.variant_tables import variant_runner

        conditions = Conditions(self.device, self.batch_size, divergence=divergence)
        reuse = self.reuse or ()
        runner = variant_runner(table, recipes, splits, conditions, out=folder, reuse=reuse)
        children = self.parallel if self.parallel > 1 else 0
        try:
            runner.run(chosen, children=children, overwrite=self.overwrite, view=job_view())
        finally:
            # Whatever happens to the rest, tables and plots show what is finished.
            results = runner.results()
            analysis = analyse(results)
            paths = analysis.write(self.out, plots=self.plots) if results else []
        console.show(analysis.to_dict(), analysis.short_tables())
        note_files(paths)
        fail_if_any([r for r in results if not chosen or r.name in chosen], "variants")


runs_study = options.adds_options(Study, "study")


def prepare_plots(out: Path | None, *, plots: bool) -> None:
    """Check that results and plots can be written, before any work is done."""
    options.check_folder(out)
    if plots and out is not None:
        from glocal.lab.plots import check_plots

        check_plots()


def read_splits(
    train: str,
    dev: str | None,
    test: str | None,
    reading: dict[str, Any],
    *,
    labels: str | None = None,
) -> Splits:
    """Read the texts of a study."""
    from glocal.lab.experiment.jobs import Splits

    if dev is None and test is None:  # before anything is read
        raise ConfigError("nothing to measure on: give --test, --dev or both")
    splits = Splits(
        read_file(train, require_labels=True, **reading),
        dev=read_file(dev, **reading) if dev else None,
        test=read_file(test, **reading) if test else None,
        labels=labels,
    )
    measured = splits.measured
    starts = range(0, len(measured), 4096)  # most often the first text has labels
    if not any(any(measured.labels(start, start + 4096)) for start in starts):
        raise DataError(
            f"none of its {len(measured)} texts has labels, so nothing can be measured on it; "
            "check its labels column",
            path=measured.source,
        )
    return splits


def note_files(paths: Sequence[Path]) -> None:
    """Say which files were written."""
    if paths:
        console.note("\n".join(["Written:", *(f"  {path}" for path in paths)]))


def fail_if_any(results: Sequence[Result], what: str) -> None:
    """Exit with status 1 if a job failed."""
    failed = [result.name for result in results if result.has_failed]
    if failed:
        console.error(
            f"{len(failed)} of {len(results)} {what} failed: {', '.join(failed)}\n"
            "Finished results are kept; repeat the command to try the rest again."
        )
        raise typer.Exit(1)


def job_view() -> RunView:
    """Return a view that shows which job runs, its progress, and its scores."""
    from glocal.cli.job_progress import JobView

    return JobView()
