"""`glocal baseline`: what people use today, on the same split and by the same metrics."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.options import AsJson, Reading, check_folder, reads_files
from glocal.cli.studies import read_study_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glocal.lab.baselines.baseline_registry import BaselineSpec
    from glocal.lab.benchmark.benchmark import BenchmarkView
    from glocal.lab.benchmark.benchmark_rows import Contender, Row
    from glocal.metrics.bootstrap import BootstrapResult

__all__ = ["Seed", "Threads", "app", "benchmark_view"]

app = typer.Typer()

Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads each may use.", show_default="the cores there are"),
]
Seed = Annotated[int, typer.Option(min=0, help="Of everything random in a baseline.")]


@app.command()
@reads_files
def baseline(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which one; without it they are listed.")
    ] = None,
    train: Annotated[
        str | None, typer.Argument(metavar="TRAIN", help="Training texts with labels.")
    ] = None,
    test: Annotated[
        str | None, typer.Argument(metavar="TEST", help="Texts with labels to measure on.")
    ] = None,
    *,
    dev: Annotated[
        str | None, typer.Option(help="Texts to predict besides, such as to choose weights on.")
    ] = None,
    matched: Annotated[
        bool, typer.Option("--matched", help="The matched setting instead of the default.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to keep predictions and results in.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="The --out of another run on the same TEST, to compare with."),
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Train and measure a baseline, such as parabel or svm.

    There are parabel, bonsai, plt, ovr, svm and fasttext.

    Without a NAME the baselines are listed with their libraries.
    """
    if name is None:
        _list(as_json=as_json)
        return
    from glocal.errors import ConfigError
    from glocal.lab.benchmark.benchmark import Conditions, measure_alone, usable_cores
    from glocal.lab.benchmark.benchmark_documents import load_comparable
    from glocal.lab.benchmark.benchmark_rows import baseline_contender

    contender = baseline_contender(name, matched=matched, seed=seed)
    if train is None or test is None:
        raise ConfigError(f"`glocal baseline {name}` needs two files: TRAIN and TEST")
    check_folder(out)
    data = read_study_data(train, dev, test, reading)
    if against is not None:  # before the work, rather than after it
        load_comparable(against, data.measuring_hash)
    conditions = Conditions(threads or usable_cores())
    with _folder(out) as folder:
        row = measure_alone(contender, data, conditions, folder=folder, view=benchmark_view())
        if not row.is_done:
            log = f"Its log is {folder / 'log.txt'}." if out else "With --out its log is kept."
            console.error(f"{name} failed: {row.error}\n{log}")
            raise typer.Exit(1)
        comparison = None if against is None else _compare(folder, against)
    if as_json:
        console.print_json(_as_dict(row, comparison))
        return
    _show(row, comparison, against)
    if out is not None:
        console.note(f"Predictions and results are in {out}.")


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The user's folder, or one that goes when the work is done."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="glocal-baseline-") as folder:
        yield Path(folder)


def _compare(folder: Path, against: Path) -> dict[str, BootstrapResult]:
    from glocal.lab.benchmark.benchmark_documents import compare_folders

    return compare_folders(folder, against)


def _as_dict(row: Row, comparison: dict[str, BootstrapResult] | None) -> dict[str, Any]:
    from dataclasses import asdict

    found = asdict(row)
    if comparison is not None:
        found["comparison"] = {name: result.to_dict() for name, result in comparison.items()}
    return found


# --- what the user sees ----------------------------------------------------------------------


def _list(*, as_json: bool) -> None:
    from glocal.lab.baselines.baseline_registry import BASELINES, PIP

    if as_json:
        console.print_json([_spec_dict(spec) for spec in BASELINES.values()])
        return
    from rich.table import Table

    table = Table("baseline", "library", "installed", "about", box=None, pad_edge=False)
    for spec in BASELINES.values():
        table.add_row(spec.name, spec.package, spec.version or "no", spec.about)
    console.stdout().print(table)
    if not all(spec.version for spec in BASELINES.values()):
        console.note(f"For those not installed: {PIP}")
    console.note("`glocal baseline NAME TRAIN TEST` trains and measures one.")


def _spec_dict(spec: BaselineSpec) -> dict[str, Any]:
    from glocal.lab.baselines.baseline_registry import PIP

    return {
        "name": spec.name,
        "title": spec.title,
        "about": spec.about,
        "library": spec.package,
        "version": spec.version or None,
        "install": None if spec.version else PIP,
        "default": dict(spec.default),
        "matched": dict(spec.matched),
    }


def _show(row: Row, comparison: dict[str, BootstrapResult] | None, against: Path | None) -> None:
    from glocal.lab.benchmark.benchmark_page import comparison_grid, cost_grid, row_grids

    grids = row_grids([row])
    if comparison is not None:
        grids.append(comparison_grid(comparison, f"{row.contender.title} minus {against}"))
    for grid in [*grids, cost_grid([row])]:
        console.stdout().print(grid.rich())


def benchmark_view() -> BenchmarkView:
    """Shows which row is at work, for how long, and what came out."""
    from glocal.cli.training_progress import format_scores, format_seconds
    from glocal.lab.benchmark.benchmark import BenchmarkView

    class View(BenchmarkView):
        """On stderr, like all progress: a line that changes on a terminal, a line now and then."""

        def __init__(self) -> None:
            self.title, self.last = "", 0.0
            self.status: Any = None

        def on_row(self, number: int, total: int, contender: Contender) -> contextlib.ExitStack:
            """Which of how many."""
            self.title, self.last = contender.title, time.monotonic()
            count = f"[{number}/{total}] " if total > 1 else ""
            console.note(f"{count}{contender.title} ({contender.library})")
            stack = contextlib.ExitStack()
            if console.stderr().is_terminal and not console.settings.quiet:
                self.status = stack.enter_context(console.stderr().status("starting"))
            else:
                self.status = None
            return stack

        def on_tick(self, stage: str, seconds: float, percent: float | None) -> None:
            """How far it is."""
            share = "" if percent is None else f" {percent:.0f} %"
            text = f"{self.title}: {stage}{share}, {format_seconds(seconds)}"
            if self.status is not None:
                self.status.update(text)
            elif time.monotonic() - self.last >= console.PLAIN_SECONDS:
                self.last = time.monotonic()
                console.note(text)

        def on_result(self, row: Row, *, kept: bool) -> None:
            """Its scores, or why it has none."""
            title = row.contender.title
            if not row.is_done:
                console.warn(f"{title} failed: {row.error}")
                return
            scores = {name: row.score(name) or 0.0 for name in ("P@1", "P@3", "P@5", "nDCG@5")}
            trained = format_seconds(row.cost["train_seconds"])
            done = "done before" if kept else f"trained in {trained}"
            console.note(f"{title}: {done}: {format_scores(scores)}")

    return View()
