"""`glocal benchmark`: recipes and baselines on one data set, and a page of what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.baseline import Seed, Threads, benchmark_view
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
from glocal.cli.studies import read_study_data
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glocal.lab.benchmark.benchmark_page import ResultsPage
    from glocal.lab.benchmark.benchmark_rows import Row
    from glocal.lab.study import StudyData

__all__ = ["app"]

app = typer.Typer()

_NAMES = "names separated by commas"


@app.command()
@reads_files
def benchmark(
    train: Annotated[
        str | None, typer.Argument(metavar="TRAIN", help="Training texts with labels.")
    ] = None,
    dev: Annotated[
        str | None, typer.Argument(metavar="DEV", help="Texts to choose a recipe's weights on.")
    ] = None,
    test: Annotated[str | None, typer.Argument(metavar="TEST", help="Texts to measure on.")] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The results folder.")],
    recipes: Annotated[
        str | None,
        typer.Option(help=f"Recipes: {_NAMES}, or none.", show_default="all that fit any data"),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(help=f"Baselines: {_NAMES}, or none.", show_default="all installed"),
    ] = None,
    only: Annotated[str | None, typer.Option(help=f"Only these rows: {_NAMES}.")] = None,
    override: Override = None,
    labels: Labels = None,
    metric: Annotated[
        str, typer.Option(help="Orders the rows; is plotted and compared.")
    ] = "nDCG@5",
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Write the page again from finished rows.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Measure anew what was done before at --out.")
    ] = False,
    threads: Threads = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Measure recipes and baselines on one data set.

    They run one at a time, and a page of results is written.

    Quality, training time, memory, model size and speed of each; results.md, results.html and
    results.json at --out. When the command is repeated, finished rows are kept and stopped ones go
    on. Every baseline takes part with its default and its matched setting.
    """
    if report_only:
        _show(_page(out, metric), as_json=as_json)
        return
    from glocal.lab.benchmark.benchmark import (
        Benchmark,
        Conditions,
        choose_contenders,
        usable_cores,
    )
    from glocal.lab.benchmark.benchmark_page import check_metric

    check_metric(metric)
    contenders = choose_contenders(
        _names(recipes),
        _names(baselines),
        overrides=override or (),
        only=_names(only) or (),
        seed=seed,
    )
    if not contenders:
        raise ConfigError("nothing to measure: name some --recipes or --baselines instead of none")
    check_folder(out)
    if baselines is None:
        _note_missing()
    conditions = Conditions(threads or usable_cores(), device, batch_size, labels)
    data = _read(train, dev, test, reading, labels)
    run = Benchmark(contenders, data, conditions, out=out)
    run.check_folder()
    rows: list[Row] = []
    try:
        rows = run.run(overwrite=overwrite, view=benchmark_view())
    finally:
        # Whatever happens to the rest, the page shows what is finished.
        page = _page(out, metric)
    _show(page, as_json=as_json)
    _fail_if_any(rows)


def _names(text: str | None) -> list[str] | None:
    """The names in `a,b`; `none` is no name, and None stays the default."""
    if text is None or text.strip() == "none":
        return None if text is None else []
    return [name.strip() for name in text.split(",") if name.strip()]


def _note_missing() -> None:
    from glocal.lab.baselines.baseline_registry import BASELINES, PIP

    missing = [name for name, spec in BASELINES.items() if not spec.version]
    if missing:
        console.note(f"Without {', '.join(missing)}, which are not installed: {PIP}")


def _read(
    train: str | None,
    dev: str | None,
    test: str | None,
    reading: dict[str, Any],
    labels: str | None,
) -> StudyData:
    if train is None or dev is None or test is None:
        raise ConfigError("`glocal benchmark` needs three files, TRAIN DEV TEST, or --report-only")
    return read_study_data(train, dev, test, reading, labels=labels)


def _page(out: Path, metric: str) -> ResultsPage:
    """Write the page of the rows there are."""
    from glocal.lab.benchmark.benchmark import all_rows, read_manifest
    from glocal.lab.benchmark.benchmark_page import ResultsPage

    page = ResultsPage(all_rows(out), read_manifest(out), out=out, metric=metric)
    console.note("\n".join(["Written:", *(f"  {path}" for path in page.write())]))
    return page


def _show(page: ResultsPage, *, as_json: bool) -> None:
    if as_json:
        console.print_json(page.to_dict())
        return
    for grid in page.short_grids():
        console.stdout().print(grid.rich())


def _fail_if_any(rows: Sequence[Row]) -> None:
    failed = [row.contender.name for row in rows if not row.is_done]
    if failed:
        console.error(
            f"{len(failed)} of {len(rows)} rows failed: {', '.join(failed)}\n"
            "What is finished is kept; repeat the command to try the rest again."
        )
        raise typer.Exit(1)
