"""`glocal benchmark`: measure recipes and baselines on one data set, and write a results page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.baseline import Seed, Threads
from glocal.cli.parameters import argument, option
from glocal.cli.studies import fail_if_any, job_view, note_files, read_splits
from glocal.errors import ConfigError

app = typer.Typer()

_NAMES = "names separated by commas"


@app.command()
@options.reads_files
def benchmark(
    train: Annotated[str | None, argument("Training texts with labels.", metavar="TRAIN")] = None,
    dev: Annotated[
        str | None, argument("Texts to choose a recipe's weights on.", metavar="DEV")
    ] = None,
    test: Annotated[str | None, argument("Texts to measure on.", metavar="TEST")] = None,
    *,
    out: Annotated[Path, option("The results folder.", "--out", "-o")],
    recipes: Annotated[
        str | None, option(f"Recipes: {_NAMES}, or none.", show_default="all that fit any data")
    ] = None,
    baselines: Annotated[
        str | None, option(f"Baselines: {_NAMES}, or none.", show_default="all installed")
    ] = None,
    only: Annotated[str | None, option(f"Only these rows: {_NAMES}.")] = None,
    override: options.Override = None,
    labels: options.Labels = None,
    metric: Annotated[
        str, option("Metric that orders the rows and is plotted and compared.")
    ] = "nDCG@5",
    speed: Annotated[
        bool,
        option("Measure speed and memory on synthetic texts instead; needs no files.", "--speed"),
    ] = False,
    long: Annotated[bool, option("Larger sizes and longer curves (--speed).", "--long")] = False,
    plots: Annotated[bool, option("Draw the curves (--speed).", "--plots/--no-plots")] = True,
    report_only: Annotated[
        bool, option("Write the page again from finished rows.", "--report-only")
    ] = False,
    overwrite: Annotated[
        bool, option("Measure again what was done before at --out.", "--overwrite")
    ] = False,
    threads: Threads = None,
    seed: Seed = 0,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Measure recipes and baselines on one data set.

    They run one at a time. Quality, training time, memory, model size and speed of each are written
    to results.md, results.html and results.json at --out. When the command is repeated, finished
    rows are kept and stopped ones continue. Every baseline is measured with its default setting and
    with the matched one, which is the same for all linear ones.

    With --speed, times and memory of steps, predictions and start-up are compared with a dense
    implementation and with Hugging Face's Trainer in one run, and their growth is drawn.
    """
    from glocal.lab.benchmark_page import benchmark_runner, check_metric
    from glocal.lab.experiment.jobs import Conditions
    from glocal.lab.experiment.methods import choose_methods
    from glocal.lab.machine import usable_cores

    check_metric(metric)
    if speed:
        _measure_speed(out, device, long=long, plots=plots)
        return
    if report_only:
        _write_page(out, metric)
        return
    methods = choose_methods(
        _names(recipes),
        _names(baselines),
        overrides=override or (),
        only=_names(only) or (),
        seed=seed,
    )
    if not methods:
        raise ConfigError("nothing to measure: name some --recipes or --baselines, not none")
    options.check_folder(out)
    if baselines is None:
        _note_missing()
    if train is None or dev is None or test is None:
        raise ConfigError("`glocal benchmark` needs three files, TRAIN DEV TEST, or --report-only")
    conditions = Conditions(device, batch_size, threads or usable_cores(), timed=True)
    splits = read_splits(train, dev, test, reading, labels=labels)
    runner = benchmark_runner(methods, splits, conditions, out=out)
    try:
        runner.run(children=1, overwrite=overwrite, view=job_view())
    finally:
        # Whatever happens to the rest, the page shows what is finished.
        rows = runner.results()
        if rows:
            _write_page(out, metric)
    fail_if_any(rows, "rows")


def _measure_speed(out: Path, device: str, *, long: bool, plots: bool) -> None:
    from glocal.errors import require_training_packages

    require_training_packages("measuring speed")
    from glocal.lab.plots import check_plots
    from glocal.lab.speed_report import measure_speed

    if plots:
        check_plots()
    options.check_folder(out)
    report = measure_speed(device=device, long=long, say=console.note)
    note_files(report.write(out, plots=plots))
    console.show(report.to_dict(), report.tables())


def _write_page(out: Path, metric: str) -> None:
    from glocal.lab.benchmark_page import ResultsPage

    page = ResultsPage(out, metric=metric)
    note_files(page.write())
    console.show(page.to_dict(), page.short_tables())


def _names(text: str | None) -> list[str] | None:
    """Return the names in `a,b`; `none` is no name, and None stays the default."""
    if text is None or text.strip() == "none":
        return None if text is None else []
    return [name.strip() for name in text.split(",") if name.strip()]


def _note_missing() -> None:
    from glocal.lab.baselines.baseline_registry import BASELINES, PIP

    missing = [name for name, spec in BASELINES.items() if not spec.version]
    if missing:
        console.note(f"Without {', '.join(missing)}, which are not installed: {PIP}")
