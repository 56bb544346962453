"""`glocal baseline`: train and measure a method of another library."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.parameters import argument, option
from glocal.cli.studies import job_view, read_splits

app = typer.Typer()

Threads = Annotated[int | None, option("Threads each may use.", min=1, show_default="all cores")]
Seed = Annotated[int, option("Random seed of the baselines.", min=0)]


@app.command()
@options.reads_files
def baseline(
    name: Annotated[
        str | None, argument("Name of the baseline; without it they are listed.", metavar="NAME")
    ] = None,
    train: Annotated[str | None, argument("Training texts with labels.", metavar="TRAIN")] = None,
    test: Annotated[
        str | None, argument("Texts with labels to measure on.", metavar="TEST")
    ] = None,
    *,
    dev: Annotated[
        str | None, option("Further texts to predict, such as to choose weights on.")
    ] = None,
    matched: Annotated[
        bool, option("Use the setting that all linear baselines share.", "--matched")
    ] = False,
    out: Annotated[
        Path | None, option("Folder to keep predictions and results in.", "--out", "-o")
    ] = None,
    against: Annotated[
        Path | None, option("The --out of another run on the same TEST, to compare with.")
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    reading: options.Reading,
) -> None:
    """Train and measure a baseline, such as parabel or svm.

    There are parabel, bonsai, plt, ovr, svm, fasttext, pecos-tree, pecos-ova and
    libmultilabel-tree; without a NAME they are listed with their libraries.
    """
    if name is None:
        _list()
        return
    from glocal.errors import ConfigError
    from glocal.lab.benchmark_page import cost_table, quality_tables
    from glocal.lab.experiment.document_scores import compare_folders, load_document_scores
    from glocal.lab.experiment.jobs import Conditions, Job
    from glocal.lab.experiment.methods import baseline_method
    from glocal.lab.experiment.runner import Runner
    from glocal.lab.machine import usable_cores
    from glocal.predict.report_tables import comparison_table

    method = baseline_method(name, matched=matched, seed=seed)
    if train is None or test is None:
        raise ConfigError(f"`glocal baseline {name}` needs two files: TRAIN and TEST")
    options.check_folder(out)
    splits = read_splits(train, dev, test, reading)
    if against is not None:  # before the work, rather than after it
        load_document_scores(against, measured_on=splits.measuring_hash)
    conditions = Conditions(threads=threads or usable_cores(), timed=True)
    with nullcontext(out) if out else TemporaryDirectory(prefix="glocal-baseline-") as place:
        folder = Path(place)
        runner = Runner([Job.make(method, splits, conditions, folder)], out=folder)
        (row,) = runner.run(children=1, overwrite=True, view=job_view())
        if row.has_failed:
            log = f"Its log is {folder / 'log.txt'}." if out else "With --out its log is kept."
            console.error(f"{name} failed: {row.error}\n{log}")
            raise typer.Exit(1)
        compared = {}
        if against is not None:
            compared = compare_folders(folder, against, measured_on=splits.measuring_hash)
    document = row.to_dict()
    tables = quality_tables([row])
    if against is not None:
        document["comparison"] = {metric: found.to_dict() for metric, found in compared.items()}
        tables.append(comparison_table(compared.items(), f"{row.title} minus {against}"))
    console.show(document, [*tables, cost_table([row])])
    if out is not None:
        console.note(f"Predictions and results are in {out}.")


def _list() -> None:
    from glocal.lab.baselines.baseline_registry import BASELINES
    from glocal.table import Table, columns

    table = Table("", columns("text", "baseline", "library", "installed", "about"))
    document = []
    for name, spec in BASELINES.items():
        table.rows.append((name, spec.package, spec.version or "no", spec.about))
        document.append(
            {
                "name": name,
                "title": spec.title,
                "about": spec.about,
                "library": spec.package,
                "version": spec.version or None,
                "install": None if spec.version else spec.install,
                "default": dict(spec.default),
                "matched": dict(spec.matched),
            }
        )
    console.show(document, [table])
    if console.settings.as_json:
        return
    for install in dict.fromkeys(s.install for s in BASELINES.values() if not s.version):
        console.note(f"For those not installed: {install}")
    console.note("`glocal baseline NAME TRAIN TEST` trains and measures one.")
