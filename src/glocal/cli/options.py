"""Options that several subcommands share, so that they read the same everywhere."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from glocal.errors import ConfigError

__all__ = [
    "AsJson",
    "BatchSize",
    "Device",
    "Labels",
    "Model",
    "Override",
    "Reading",
    "TopK",
    "check_folder",
    "choose_k",
    "parse_ks",
    "reads_files",
    "split_models_and_file",
]

DEFAULT_K = 5

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model directory, as `glocal train` writes it.")
]
Override = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated."
    ),
]
Device = Annotated[
    str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:N.", show_default=True)
]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts computed at a time.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of tables.")]
TopK = Annotated[
    int | None,
    typer.Option("--k", "-k", min=1, help="Labels for each text, at most.", show_default="5"),
]
Labels = Annotated[
    str | None,
    typer.Option("--labels", help="Label table: id, name, description, parents (JSONL, CSV, …)."),
]

Reading = dict[str, Any]  # options of `glocal.data.readers.read_corpus`


def _reading(
    *,
    skip_bad_rows: Annotated[
        bool,
        typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and say which."),
    ] = False,
    format: Annotated[str, typer.Option(help="File format; found out by default.")] = "auto",
    text_field: Annotated[str, typer.Option(help="Field or column of the text.")] = "text",
    labels_field: Annotated[str, typer.Option(help="Field or column of the labels.")] = "labels",
    id_field: Annotated[str, typer.Option(help="Field or column of the id.")] = "id",
    label_separator: Annotated[
        str, typer.Option(help="What separates labels in one string.")
    ] = ";",
) -> Reading:
    """How files are read: the same options wherever one is."""
    return locals()


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of how files are read; they reach it as its argument `reading`."""
    own = inspect.signature(command, eval_str=True)
    options = inspect.signature(_reading, eval_str=True).parameters

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        reading = _reading(**{name: arguments.pop(name) for name in options})
        command(**arguments, reading=reading)

    kept = [parameter for parameter in own.parameters.values() if parameter.name != "reading"]
    parameters = [*kept, *options.values()]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def check_folder(out: Path | None) -> None:
    """Refuse a place for results that cannot be a folder, before any work is done for them.

    Raises:
        ConfigError: A file is in the way, or nothing can be written there.
    """
    if out is None:
        return
    nearest = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ConfigError(f"--out {out}: {nearest} is a file; give a folder, or a new name for one")
    if not os.access(nearest, os.W_OK):
        raise ConfigError(f"--out {out}: {nearest} cannot be written to; choose another place")


def parse_ks(text: str) -> tuple[int, ...]:
    """The cut-offs in `1,3,5`, in ascending order."""
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        ks = []
    if not ks or ks[0] < 1:
        raise ConfigError(f"-k {text}: expected whole numbers from 1 on, such as 1,3,5")
    return tuple(ks)


def choose_k(k: int | None, n_labels: int) -> int:
    """The k asked for, or the default; only a k that was asked for can be too large."""
    return min(DEFAULT_K, n_labels) if k is None else k


def split_models_and_file(
    paths: list[str], *, command: str, most: int | None = None
) -> tuple[list[Path], str]:
    """The model directories and the data file of `MODEL… FILE`.

    Raises:
        ConfigError: When the number of paths is wrong.
    """
    models, file = [Path(path) for path in paths[:-1]], paths[-1]
    if not models or (most is not None and len(models) > most):
        expected = "MODEL… FILE" if most is None else "MODEL [MODEL2] FILE"
        raise ConfigError(
            f"`glocal {command}` takes {expected}, and got {len(paths)} path(s): {' '.join(paths)}"
        )
    return models, file
