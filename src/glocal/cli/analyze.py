"""`glocal analyze`: sweeps over layers, performance by label frequency, costs of output layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console
from glocal.cli.analyze_heads import heads
from glocal.cli.corpora import read_file
from glocal.cli.options import (
    AsJson,
    BatchSize,
    Device,
    Override,
    Reading,
    check_folder,
    reads_files,
    split_models_and_file,
)
from glocal.cli.studies import (
    Dev,
    Out,
    Overwrite,
    Parallel,
    Plots,
    RecipeName,
    Reuse,
    Test,
    Train,
    check_reuse,
    finish,
    read_study_data,
    run_study,
)
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glocal.data.corpus import Corpus
    from glocal.predict.evaluation import EvaluationReport
    from glocal.vocabulary.bands import Bands

__all__ = ["app"]

app = typer.Typer(
    name="analyze",
    help="Analyse layers, label frequencies and output layers.",
    no_args_is_help=True,
)
app.command()(heads)


@app.command()
@reads_files
def layers(
    train: Train,
    *,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    second_expert: Annotated[
        bool,
        typer.Option("--second-expert", help="Sweep D-n and A-n as ME-XML's second expert."),
    ] = False,
    only: Annotated[
        str | None, typer.Option("--layers", help="Only these layers, such as 0,1,6.")
    ] = None,
    recipe: RecipeName = None,
    override: Override = None,
    parallel: Parallel = 1,
    overwrite: Overwrite = False,
    reuse: Reuse = None,
    plots: Plots = True,
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Train an expert on each layer of the encoder: scores, gain and divergence by layer.

    By default the local expert beside the global one (GlocalXML Figures 2 to 4). Repeating the
    command goes on with what is not finished.
    """
    wanted = None if only is None else _parse_layers(only)
    from glocal.lab.layers import LayerSweep, layer_table, on_layers
    from glocal.lab.variant_tables import resolve

    if plots:
        from glocal.lab.plots import check_plots

        check_plots()
    table = layer_table(second_expert=second_expert, recipe=recipe, overrides=override or ())
    chosen = [] if wanted is None else on_layers(table, wanted)
    recipes = resolve(table, override or ())
    check_folder(out)
    check_reuse(reuse or (), overwrite=overwrite)
    data = read_study_data(train, dev, test, reading)

    from glocal.lab.study import Study

    study = Study(
        table.variants,
        recipes,
        data,
        out=out / table.name,
        divergence=True,
        device=device,
        batch_size=batch_size,
        reuse=reuse or (),
    )
    run_study(
        study,
        chosen,
        lambda outcomes: LayerSweep(table, recipes, data, outcomes),
        out=out,
        parallel=parallel,
        overwrite=overwrite,
        plots=plots,
        as_json=as_json,
    )


@app.command()
@reads_files
def bands(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL [MODEL2] FILE", help="One or two model directories, and labelled texts."
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for tables and plots.")
    ] = None,
    band_ranges: Annotated[
        str | None,
        typer.Option("--bands", help="Frequency bands, such as few=1-20,medium=21-100,many=101-."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Cut-off of the scores.")] = 5,
    experts: Annotated[
        bool, typer.Option("--experts", help="Also each expert of each model by itself.")
    ] = False,
    plots: Plots = True,
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Macro precision, recall and F1 by label frequency, one or two models side by side."""
    from glocal.vocabulary.bands import Bands

    models, file = split_models_and_file(paths, command="analyze bands", most=2)
    if len(set(models)) < len(models):
        raise ConfigError(f"{models[0]} is given twice; give two models, or it alone")
    ranges = Bands() if band_ranges is None else Bands.parse(band_ranges)
    check_folder(out)
    if plots and out is not None:
        from glocal.lab.plots import check_plots

        check_plots()
    corpus = read_file(file, **reading)
    reports = {
        path: _evaluate(path, corpus, ranges, k=k, device=device, batch_size=batch_size)
        for path in models
    }
    from glocal.lab.band_report import BandComparison

    result = BandComparison(_series(reports, experts=experts), k=k, source=file)
    written = [] if out is None else result.write(out, plots=plots)
    if as_json:
        console.print_json(result.to_dict())
    else:
        for grid in result.grids():
            console.stdout().print(grid.rich())
    if written:
        finish(written, ())


def _parse_layers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--layers {text}: expected layer numbers, such as 0,1,6") from None


def _evaluate(
    path: Path, corpus: Corpus, ranges: Bands, *, k: int, device: str, batch_size: int
) -> EvaluationReport:
    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(path, device=device, batch_size=batch_size)
    with console.progress_bar(f"evaluating {path}") as progress:
        return predictor.evaluate(corpus, ks=(k,), bands=ranges, progress=progress)


def _series(
    reports: dict[Path, EvaluationReport], *, experts: bool
) -> dict[str, tuple[EvaluationReport, str]]:
    """Return the reports by the shortest names that tell the models and their parts apart."""
    from glocal.predict.evaluation import COMBINED

    names = _short_names(list(reports))
    series = {}
    for path, report in reports.items():
        parts = list(report.experts) if experts else []
        series[names[path]] = (report, COMBINED)
        series |= {f"{names[path]} {part}": (report, part) for part in parts}
    return series


def _short_names(paths: Sequence[Path]) -> dict[Path, str]:
    last = [path.resolve().name for path in paths]
    return {
        path: name if last.count(name) == 1 else str(path)
        for path, name in zip(paths, last, strict=True)
    }
