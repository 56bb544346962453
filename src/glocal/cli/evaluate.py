"""`glocal eval`: all metrics of one model, or the comparison of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file
from glocal.cli.options import (
    Bands,
    BatchSize,
    Device,
    Reading,
    parse_ks,
    reads_files,
    split_models_and_file,
)
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from glocal.data.corpus import Corpus
    from glocal.metrics.bootstrap import BootstrapResult
    from glocal.predict.band_calibration import BandCalibration
    from glocal.predict.band_ranking import BandRanking
    from glocal.predict.evaluation import EvaluationReport
    from glocal.predict.shared_task import SharedTaskScores

app = typer.Typer()


@app.command("eval")
@reads_files
def evaluate(
    paths: Annotated[
        list[str],
        argument(
            "One or two model directories, and labelled texts.", metavar="MODEL [MODEL2] FILE"
        ),
    ],
    *,
    train: Annotated[
        str | None, option("Training texts: also score without the near-duplicates of these.")
    ] = None,
    bands: Bands = None,
    k: Annotated[str, option("Cut-offs of the metrics, such as 1,3,5.", "--k", "-k")] = "1,3,5",
    threshold: Annotated[
        float | None,
        option(
            "Lowest probability of the tags that micro-F1 counts.",
            min=0,
            max=1,
            show_default="the model's own decision",
        ),
    ] = None,
    within_bands: Annotated[
        bool,
        option(
            "Also rank the labels of each band among themselves, including unseen ones "
            "(bands few=1-50,frequent=51- unless --bands is given).",
            "--within-bands",
        ),
    ] = False,
    more_gold: Annotated[
        str | None, option("Texts of another split, whose labels also compete within bands.")
    ] = None,
    shared_task: Annotated[
        bool,
        option(
            "Also give mean recall over k = 5 … 50 and F1@5, as shared tasks and Annif do.",
            "--shared-task",
        ),
    ] = False,
    group_field: Annotated[
        str | None,
        option("Field whose values group the texts for --shared-task.", metavar="NAME"),
    ] = None,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Evaluate a model on labelled texts, or compare two models.

    Two models are compared by paired bootstrap over the texts.
    """
    ks = parse_ks(k)
    models, file = split_models_and_file(paths, command="eval", most=2)
    _check_options(
        len(models),
        within_bands=within_bands,
        shared_task=shared_task,
        group_field=group_field,
        more_gold=more_gold,
    )

    from glocal.predict.report_tables import (
        band_calibration_table,
        comparison_table,
        ranking_table,
    )
    from glocal.predict.shared_task import shared_task_table
    from glocal.storage.model_directory import read_labels
    from glocal.vocabulary import bands as label_bands

    options: dict[str, Any] = {
        "ks": ks,
        "threshold": threshold,
        "bands": label_bands.Bands.parse(bands) if bands else None,
        "train": read_file(train, **reading) if train else None,
    }
    known = [read_labels(models[0])]
    corpus = read_file(file, known=known, **reading)
    ranking = {
        "bands": options["bands"],
        "k": max(ks),
        "more_gold": read_file(more_gold, known=known, **reading) if more_gold else None,
    }
    groups = read_file(file, **{**reading, "id_field": group_field}).ids if group_field else None
    reports, comparison, shared = _evaluate(
        models,
        corpus,
        options,
        shared_task=shared_task,
        groups=groups,
        device=device,
        batch_size=batch_size,
    )
    rankings: list[BandRanking] = []
    calibrations: list[BandCalibration] = []
    if within_bands:
        rankings, calibrations = _rank(
            models[0], corpus, ranking, device=device, batch_size=batch_size
        )
    further: dict[str, tuple[list[Any], Any]] = {
        "within_bands": (rankings, ranking_table),
        "band_calibration": (calibrations, band_calibration_table),
        "shared_task": (shared, shared_task_table),
    }
    if console.settings.as_json:
        listed = {name: [row.to_dict() for row in rows] for name, (rows, _) in further.items()}
        filled = {name: rows for name, rows in listed.items() if rows}
        console.print_json({**_as_dict(reports, comparison), **filled})
        return
    if comparison is not None:
        title = f"{models[1]} minus {models[0]}"
        console.stdout().print(comparison_table(comparison.items(), title))
    for path, report in reports.items():
        print_report(report, title=path)
    for rows, table in further.values():
        if rows:
            console.stdout().print(table(rows))


def _check_options(
    n_models: int,
    *,
    within_bands: bool,
    shared_task: bool,
    group_field: str | None,
    more_gold: str | None,
) -> None:
    """Refuse options that do not go together, before anything is read."""
    for name, given in (("--within-bands", within_bands), ("--shared-task", shared_task)):
        if given and n_models > 1:
            raise ConfigError(
                f"{name} takes one model, and two are given; evaluate them one by one"
            )
    if group_field and not shared_task:
        raise ConfigError("--group-field needs --shared-task; add it, or leave out --group-field")
    if more_gold and not within_bands:
        raise ConfigError("--more-gold needs --within-bands; add it, or leave out --more-gold")


def _rank(
    model: Path,
    corpus: Corpus,
    options: dict[str, Any],
    *,
    device: str,
    batch_size: int,
) -> tuple[list[BandRanking], list[BandCalibration]]:
    from glocal.predict.band_calibration import calibration_by_band
    from glocal.predict.band_ranking import rank_within_bands
    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(model, device=device, batch_size=batch_size)
    with console.progress_bar("ranking within bands") as progress:
        rankings = rank_within_bands(predictor, corpus, progress=progress, **options)
    with console.progress_bar("probabilities by band") as progress:
        bands = options["bands"]
        return rankings, calibration_by_band(predictor, corpus, bands=bands, progress=progress)


def _evaluate(
    models: list[Path],
    corpus: Corpus,
    options: dict[str, Any],
    *,
    shared_task: bool,
    groups: Sequence[str] | None,
    device: str,
    batch_size: int,
) -> tuple[dict[str, EvaluationReport], dict[str, BootstrapResult] | None, list[SharedTaskScores]]:
    """Return the reports, the comparison of two models, and the shared-task scores if asked."""
    if len(models) == 2:
        from glocal.predict.model_comparison import compare_models

        with console.progress_bar("evaluating") as progress:
            reports, comparison = compare_models(
                models,
                corpus,
                options=options,
                device=device,
                batch_size=batch_size,
                progress=progress,
            )
        return reports, comparison, []
    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(models[0], device=device, batch_size=batch_size)
    with console.progress_bar("evaluating") as progress:
        found = predictor.predict_for_report(corpus, ks=options["ks"], progress=progress)
    report, shared = predictor.report(found, corpus, **options), []
    if shared_task:
        from glocal.predict.shared_task import shared_task_scores

        shared = shared_task_scores(found, predictor.labels.encode(corpus), groups)
    return {str(models[0]): report}, None, shared


def print_report(report: EvaluationReport, *, title: str) -> None:
    """Print the tables of a report to stdout."""
    from glocal.predict.report_tables import report_tables

    out = console.stdout()
    out.print(title, style="bold")
    for table in report_tables(report):
        out.print(table)


def _as_dict(
    reports: dict[str, EvaluationReport], comparison: dict[str, BootstrapResult] | None
) -> dict[str, Any]:
    if comparison is None:
        (report,) = reports.values()
        return report.to_dict()
    return {
        "models": {path: report.to_dict() for path, report in reports.items()},
        "comparison": {metric: result.to_dict() for metric, result in comparison.items()},
    }
