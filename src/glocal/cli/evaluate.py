"""`glocal eval`: all metrics of one model, or the comparison of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file
from glocal.cli.options import (
    AsJson,
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
    from pathlib import Path

    from glocal.data.corpus import Corpus
    from glocal.metrics.bootstrap import BootstrapResult
    from glocal.predict.band_ranking import BandRanking
    from glocal.predict.evaluation import EvaluationReport

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
        float, option("Probability from which a label counts as predicted.", min=0, max=1)
    ] = 0.5,
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
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Evaluate a model on labelled texts, or compare two models.

    Two models are compared by paired bootstrap over the texts.
    """
    ks = parse_ks(k)
    models, file = split_models_and_file(paths, command="eval", most=2)
    if within_bands and len(models) > 1:
        raise ConfigError(
            "--within-bands takes one model, and two are given; evaluate them one by one"
        )
    if more_gold and not within_bands:
        raise ConfigError("--more-gold needs --within-bands; add it, or leave out --more-gold")

    from glocal.predict.report_tables import comparison_table, ranking_table
    from glocal.vocabulary import bands as label_bands

    options: dict[str, Any] = {
        "ks": ks,
        "threshold": threshold,
        "bands": label_bands.Bands.parse(bands) if bands else None,
        "train": read_file(train, **reading) if train else None,
    }
    corpus = read_file(file, **reading)
    ranking = {
        "bands": options["bands"],
        "k": max(ks),
        "more_gold": read_file(more_gold, **reading) if more_gold else None,
    }
    reports, comparison = _evaluate(models, corpus, options, device=device, batch_size=batch_size)
    rankings: list[BandRanking] = []
    if within_bands:
        rankings = _rank(models[0], corpus, ranking, device=device, batch_size=batch_size)
    if as_json:
        result = _as_dict(reports, comparison)
        if within_bands:
            result["within_bands"] = [ranking.to_dict() for ranking in rankings]
        console.print_json(result)
        return
    if comparison is not None:
        title = f"{models[1]} minus {models[0]}"
        console.stdout().print(comparison_table(comparison.items(), title))
    for path, report in reports.items():
        print_report(report, title=path)
    if rankings:
        console.stdout().print(ranking_table(rankings))


def _rank(
    model: Path,
    corpus: Corpus,
    options: dict[str, Any],
    *,
    device: str,
    batch_size: int,
) -> list[BandRanking]:
    from glocal.predict.band_ranking import rank_within_bands
    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(model, device=device, batch_size=batch_size)
    with console.progress_bar("ranking within bands") as progress:
        return rank_within_bands(predictor, corpus, progress=progress, **options)


def _evaluate(
    models: list[Path], corpus: Corpus, options: dict[str, Any], *, device: str, batch_size: int
) -> tuple[dict[str, EvaluationReport], dict[str, BootstrapResult] | None]:
    if len(models) == 2:
        from glocal.predict.model_comparison import compare_models

        with console.progress_bar("evaluating") as progress:
            return compare_models(
                models,
                corpus,
                options=options,
                device=device,
                batch_size=batch_size,
                progress=progress,
            )
    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(models[0], device=device, batch_size=batch_size)
    with console.progress_bar("evaluating") as progress:
        report = predictor.evaluate(corpus, progress=progress, **options)
    return {str(models[0]): report}, None


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
