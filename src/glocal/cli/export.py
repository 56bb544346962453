"""`glocal export`: a model as a graph that runs without torch."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file
from glocal.cli.parameters import option

if TYPE_CHECKING:
    from glocal.export.export_model import Exported

app = typer.Typer()


@app.command()
@options.reads_files
def export(
    model: options.Model,
    *,
    to: Annotated[
        str, option("Runtime of the exported model: onnx or openvino.", metavar="NAME")
    ] = "onnx",
    out: Annotated[
        Path | None,
        option("Directory to write.", "--out", "-o", show_default="MODEL-onnx, MODEL-openvino, …"),
    ] = None,
    int8: Annotated[
        bool, option("Compute in int8 where P@k on dev stays within 0.2 points.", "--int8")
    ] = False,
    dev: Annotated[str | None, option("Labelled texts that --int8 is checked on.")] = None,
    overwrite: Annotated[bool, option("Replace an existing directory.", "--overwrite")] = False,
    reading: options.Reading,
) -> None:
    """Write a model as a graph that runs without torch.

    The result is a model directory for every other command, in an environment of
    `pip install 'glocal[runtime]'` (or 'glocal[openvino]').
    """
    from glocal.export.export_model import export_model

    target = out or model.with_name(f"{model.name}-{to}{'-int8' if int8 else ''}")
    corpus = None if dev is None else read_file(dev, require_labels=True, **reading)
    bar = console.progress_bar("checking int8 on dev") if int8 else nullcontext()
    with _cleaning_up(), bar as progress:
        done = export_model(
            model,
            target,
            to=to,
            int8=int8,
            dev=corpus,
            overwrite=overwrite,
            report=console.note,
            progress=progress,
        )
    facts = {"int8": done.int8, "in_fp32": list(done.in_fp32), "dev": done.scores}
    console.show({"path": str(target), **facts})
    if done.scores is not None:
        for precision, scores in done.scores.items():
            values = "  ".join(f"{name} {100 * value:.1f}" for name, value in scores.items())
            console.note(f"dev in {precision}: {values}")
        console.note(_outcome(done))
    console.note(f"Wrote {target}.")


@contextmanager
def _cleaning_up() -> Iterator[None]:
    """Have SIGTERM end the command as an error does, so that its temporary folders are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _outcome(done: Exported) -> str:
    if not done.int8:
        return "int8 lost more than 0.2 points of P@k in every layer, so the graph is in fp32."
    if not done.in_fp32:
        return "Every layer of the encoder is in int8."
    kept = "; ".join(done.in_fp32)
    return f"{done.int8}% of the encoder's products are in int8. In fp32, weights: {kept}."
