"""`glocal eval`: all metrics of one model, or the comparison of two."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.parameters import option
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glocal.predict.evaluation import EvaluationReport

app = typer.Typer()


@app.command("eval")
@options.reads_files
def evaluate(
    paths: options.OneOrTwoModels,
    *,
    train: Annotated[
        str | None, option("Training texts: also score without the near-duplicates of these.")
    ] = None,
    bands: options.BandRanges = None,
    k: options.CutOffs = "1,3,5",
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
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Evaluate a model on labelled texts, or compare two models.

    Two models are compared by paired bootstrap over the texts.
    """
    ks = options.parse_ks(k)
    models, file = options.split_models_and_file(paths, command="eval", most=2)
    for name, given in (("--within-bands", within_bands), ("--shared-task", shared_task)):
        if given and len(models) > 1:
            raise ConfigError(
                f"{name} takes one model, and two are given; evaluate them one by one"
            )
    if group_field and not shared_task:
        raise ConfigError("--group-field needs --shared-task; add it, or leave out --group-field")
    if more_gold and not within_bands:
        raise ConfigError("--more-gold needs --within-bands; add it, or leave out --more-gold")

    from glocal.predict import report_tables
    from glocal.predict.predictor import Predictor
    from glocal.storage.model_directory import read_labels
    from glocal.vocabulary.bands import Bands

    label_bands = Bands.parse(bands) if bands else None
    settings: dict[str, Any] = {
        "ks": ks,
        "threshold": threshold,
        "bands": label_bands,
        "train": read_file(train, **reading) if train else None,
    }
    known = [read_labels(models[0])]
    corpus = read_file(file, known=known, **reading)
    more = read_file(more_gold, known=known, **reading) if more_gold else None
    groups = read_file(file, **{**reading, "id_field": group_field}).ids if group_field else None
    place: dict[str, Any] = {"device": device, "batch_size": batch_size}
    if len(models) == 2:
        from glocal.predict.model_comparison import compare_models

        with console.progress_bar("evaluating") as progress:
            reports, comparison = compare_models(
                models, corpus, options=settings, progress=progress, **place
            )
        document: dict[str, Any] = {
            "models": {path: report.to_dict() for path, report in reports.items()},
            "comparison": {metric: found.to_dict() for metric, found in comparison.items()},
        }
        title = f"{models[1]} minus {models[0]}"
        console.show(document, [report_tables.comparison_table(comparison.items(), title)])
        show_reports(reports)
        return
    predictor = Predictor.load(models[0], **place)
    with console.progress_bar("evaluating") as progress:
        found = predictor.predict_for_report(corpus, ks=ks, progress=progress)
    report = predictor.report(found, corpus, **settings)
    document, tables = report.to_dict(), []
    if within_bands:
        from glocal.predict.band_calibration import calibration_by_band
        from glocal.predict.band_ranking import rank_within_bands

        with console.progress_bar("ranking within bands") as progress:
            rankings = rank_within_bands(
                predictor, corpus, bands=label_bands, k=max(ks), more_gold=more, progress=progress
            )
        with console.progress_bar("probabilities by band") as progress:
            calibrations = calibration_by_band(
                predictor, corpus, bands=label_bands, progress=progress
            )
        document["within_bands"] = [asdict(row) for row in rankings]
        document["band_calibration"] = [row.to_dict() for row in calibrations]
        tables.append(report_tables.ranking_table(rankings))
        tables.append(report_tables.band_calibration_table(calibrations))
    if shared_task:
        from glocal.predict.shared_task import shared_task_scores, shared_task_table

        shared = shared_task_scores(found, predictor.labels.encode(corpus), groups)
        document["shared_task"] = [asdict(row) for row in shared]
        tables.append(shared_task_table(shared))
    show_reports({str(models[0]): report})
    console.show(document, tables)


def show_reports(reports: Mapping[str, EvaluationReport]) -> None:
    """Print the tables of reports to stdout, each below its title; nothing with `--json`."""
    from glocal.predict.report_tables import report_tables

    for title, report in () if console.settings.as_json else reports.items():
        console.stdout().print(title, style="bold")
        for table in report_tables(report):
            console.stdout().print(table)
