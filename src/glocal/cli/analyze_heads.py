"""`glocal analyze heads`: what a flat and a clustered output layer cost, and should by formula."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli import console
from glocal.cli.options import AsJson, check_folder
from glocal.errors import ConfigError

__all__ = ["heads"]


def heads(
    *,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…", help="Numbers of labels.", show_default="six from 3,956 to 670,091"
        ),
    ] = None,
    width: Annotated[int, typer.Option(min=8, help="Width of the document vectors.")] = 384,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts in a step.")] = 32,
    q: Annotated[float, typer.Option(min=1.0, help="By which tails narrow.")] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each, for a median.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for tables and plots.")
    ] = None,
    plots: Annotated[bool, typer.Option(help="Draw plots beside the tables.")] = True,
    as_json: AsJson = False,
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
) -> None:
    """Parameters, time and memory of flat and clustered output layers, measured and by formula.

    Labels and texts are made up, so no data is needed; 670K labels take about 8 GB of memory.
    """
    from glocal.lab.heads import LABEL_COUNTS, measure_heads

    counts = LABEL_COUNTS if labels is None else _parse_counts(labels)
    check_folder(out)
    if plots and out is not None:
        from glocal.lab.plots import check_plots

        check_plots()
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
    if as_json:
        console.print_json(result.to_dict())
    else:
        for grid in result.grids():
            console.stdout().print(grid.rich())
    if written:
        console.note("\n".join(["Written:", *(f"  {path}" for path in written)]))


def _parse_counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise ConfigError(f"--labels {text}: expected numbers of labels, such as 4000,30000")
    return counts
