"""`glocal analyze`: layers, label frequencies, output layers, faithfulness of explanations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.parameters import argument, option
from glocal.cli.studies import (
    Plots,
    Study,
    Train,
    note_files,
    prepare_plots,
    read_splits,
    runs_study,
)
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.predict.evaluation import EvaluationReport

app = typer.Typer(
    name="analyze",
    help="Analyse layers, label bands, output layers, explanations.",
    no_args_is_help=True,
)


@app.command()
@options.reads_files
@runs_study
def layers(
    train: Train,
    *,
    second_expert: Annotated[
        bool, option("Sweep D-n and A-n as ME-XML's second expert.", "--second-expert")
    ] = False,
    only: Annotated[str | None, option("Only these layers, such as 0,1,6.", "--layers")] = None,
    study: Study,
    reading: options.Reading,
) -> None:
    """Train an expert on each layer of the encoder: scores, gain and divergence by layer.

    By default the local expert beside the global one (GlocalXML Figures 2 to 4). Repeat the command
    to continue with what is not finished.
    """
    expected = "layer numbers, such as 0,1,6"
    wanted = [] if only is None else options.parse_numbers(only, "--layers", expected)
    from glocal.lab.layers import LayerSweep, layer_table, on_layers
    from glocal.lab.variant_tables import resolve

    changes = study.override or ()
    table = layer_table(second_expert=second_expert, recipe=study.recipe, overrides=changes)
    chosen = on_layers(table, wanted) if wanted else []
    recipes = resolve(table, changes)
    study.check()
    splits = read_splits(train, study.dev, study.test, reading)
    study.run(
        table,
        recipes,
        splits,
        lambda results: LayerSweep(table, recipes, splits, results),
        chosen=chosen,
        folder=study.out / table.name,
        divergence=True,
    )


@app.command()
@options.reads_files
def bands(
    paths: options.OneOrTwoModels,
    *,
    out: Annotated[Path | None, option("Folder for tables and plots.", "--out", "-o")] = None,
    band_ranges: options.BandRanges = None,
    k: Annotated[int, option("Cut-off of the scores.", "--k", "-k", metavar="N", min=1)] = 5,
    experts: Annotated[bool, option("Also show each expert of each model.", "--experts")] = False,
    plots: Plots = True,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Print macro precision, recall and F1 by label frequency, one or two models side by side."""
    from glocal.predict.predictor import Predictor
    from glocal.vocabulary.bands import Bands

    models, file = options.split_models_and_file(paths, command="analyze bands", most=2)
    if len(set(models)) < len(models):
        raise ConfigError(f"{models[0]} is given twice; give two models, or it alone")
    ranges = Bands() if band_ranges is None else Bands.parse(band_ranges)
    prepare_plots(out, plots=plots)
    corpus = read_file(file, **reading)
    reports = {}
    for path in models:
        predictor = Predictor.load(path, device=device, batch_size=batch_size)
        with console.progress_bar(f"evaluating {path}") as progress:
            found = predictor.evaluate(corpus, ks=(k,), bands=ranges, progress=progress)
        reports[path] = found
    from glocal.lab.band_report import BandComparison

    result = BandComparison(_series(reports, experts=experts), k=k, source=file)
    written = [] if out is None else result.write(out, plots=plots)
    console.show(result.to_dict(), result.tables())
    note_files(written)


@app.command()
@options.reads_files
def faithfulness(
    model: options.Model,
    file: Annotated[str, argument("Texts to explain.", metavar="FILE")],
    *,
    limit: Annotated[
        int | None, option("Texts to explain, drawn by the seed; all by default.", min=1)
    ] = None,
    seed: Annotated[int, option("Random seed.", min=0)] = 0,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Measure whether the words that explanations name really carry the tags.

    The words named for the best tag of each text (one in five, one to five words) are removed, and
    what the tag's log-odds lose is compared with the loss by as many random words.
    """
    import numpy as np

    from glocal.lab.faithfulness import faithfulness_table, measure_faithfulness, to_dict
    from glocal.predict.predictor import Predictor

    corpus = read_file(file, **reading)
    if limit is not None and limit < len(corpus):
        drawn = np.random.default_rng(seed).permutation(len(corpus))[:limit]
        corpus = corpus.take(np.sort(drawn))
    predictor = Predictor.load(model, device=device, batch_size=batch_size)
    with console.progress_bar("explaining") as progress:
        rows = measure_faithfulness(predictor, corpus, seed=seed, progress=progress)
    console.show(to_dict(rows), [faithfulness_table(rows, file)])


@app.command()
def heads(
    *,
    labels: Annotated[
        str | None,
        option("Numbers of labels.", metavar="N,N,…", show_default="six from 3,956 to 670,091"),
    ] = None,
    width: Annotated[int, option("Width of the document vectors.", min=8)] = 384,
    batch_size: Annotated[int, option("Texts in a step.", min=1)] = 32,
    q: Annotated[float, option("Factor by which each tail narrows.", min=1.0)] = 2.0,
    repeats: Annotated[int, option("Measurements per layer; the median is shown.", min=1)] = 5,
    out: Annotated[Path | None, option("Folder for tables and plots.", "--out", "-o")] = None,
    plots: Plots = True,
    device: Annotated[str, option("Where to compute: cpu or cuda.")] = "cpu",
) -> None:
    """Measure parameters, time and memory of flat and clustered output layers.

    The paper's formulas stand beside the measurements. Labels and texts are synthetic, so no data
    is needed; 670K labels take about 8 GB of memory.
    """
    from glocal.lab.heads import LABEL_COUNTS, measure_heads

    expected, counts = "numbers of labels, such as 4000,30000", list(LABEL_COUNTS)
    if labels is not None:
        counts = options.parse_numbers(labels, "--labels", expected, least=1)
    prepare_plots(out, plots=plots)
    with console.progress_bar("measuring", unit="layers") as progress:
        result = measure_heads(
            counts,
            width=width,
            batch=batch_size,
            q=q,
            repeats=repeats,
            device=device,
            progress=progress,
        )
    written = [] if out is None else result.write(out, plots=plots)
    console.show(result.to_dict(), result.tables())
    note_files(written)


def _series(
    reports: dict[Path, EvaluationReport], *, experts: bool
) -> dict[str, tuple[EvaluationReport, str]]:
    """Return the reports by the shortest names that tell the models and their parts apart."""
    from glocal.predict.evaluation import COMBINED

    last = [path.resolve().name for path in reports]
    series: dict[str, tuple[EvaluationReport, str]] = {}
    for path, report in reports.items():
        name = path.resolve().name
        name = name if last.count(name) == 1 else str(path)
        parts = report.experts if experts else ()
        series |= {name: (report, COMBINED), **{f"{name} {p}": (report, p) for p in parts}}
    return series
