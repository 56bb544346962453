"""`glocal predict`: tags for any number of texts, streamed."""

from __future__ import annotations

from typing import Annotated

import typer

from glocal.cli import console
from glocal.cli.corpora import read_label_list, report_skipped
from glocal.cli.options import (
    AsJson,
    BatchSize,
    Device,
    Model,
    Reading,
    TopK,
    choose_k,
    reads_files,
)

__all__ = ["app"]

app = typer.Typer()


@app.command()
@reads_files
def predict(
    model: Model,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts to tag, or - for JSONL on stdin.")
    ],
    *,
    k: TopK = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out labels of a lower probability.")
    ] = 0.0,
    only: Annotated[
        str | None, typer.Option(help="File of label ids, one a line: choose from these.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(help="File of label ids, one a line: never give these.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="A .jsonl, .jsonl.gz or .parquet file.", show_default="stdout"
        ),
    ] = None,
    names: Annotated[bool, typer.Option(help="Give each label's name beside its id.")] = True,
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Tag texts, in their order and with the best label first.

    Without FILE, texts are read from stdin. Tags are JSON lines; on a terminal, a table.
    """
    from glocal.data.readers import iter_documents
    from glocal.predict.bulk import open_writer, predict_rows
    from glocal.predict.predictor import Predictor

    chosen, excluded = read_label_list(only), read_label_list(exclude)
    predictor = Predictor.load(model, device=device, batch_size=batch_size)
    width = choose_k(k, len(predictor.labels))
    predictor.check_k(width)
    skipped: list[str] = []
    documents = iter_documents(file, skipped=skipped, **reading)
    with open_writer(output, names=names) as write, console.progress_bar("tagging") as progress:
        write(
            predict_rows(
                predictor,
                documents,
                k=width,
                threshold=threshold,
                names=names,
                only=chosen,
                exclude=excluded,
                progress=progress,
            )
        )
    report_skipped(skipped)
    if output not in (None, "-"):
        console.note(f"Wrote {output}.")
