"""`glocal analyze heads`: costs of flat and clustered output layers, measured and by formula."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from glocal.cli import console, options
from glocal.cli.parameters import option
from glocal.cli.studies import Plots, note_files, prepare_plots


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
