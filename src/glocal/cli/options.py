"""Options that several subcommands share, so that they read the same everywhere."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError, DataError, no_such

DEFAULT_K = 5

Model = Annotated[
    Path, argument("A model directory, as `glocal train` writes it.", metavar="MODEL")
]
Override = Annotated[
    list[str] | None,
    option("Change one setting; may be repeated.", "--set", "-s", metavar="SECTION.KEY=VALUE"),
]
Device = Annotated[str, option("Device: auto, cpu, cuda or cuda:N.", show_default=True)]
BatchSize = Annotated[int, option("Texts computed at a time.", min=1)]


def _complete_recipe(incomplete: str) -> list[str]:
    from glocal.config import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


RecipeName = Annotated[
    str,
    option(
        "Recipe name (`glocal recipes` lists them), or a path ending in .toml.",
        "--recipe",
        "-r",
        metavar="NAME",
        autocompletion=_complete_recipe,
    ),
]
RecipeArgument = Annotated[
    str,
    argument(
        "Recipe name, or a path ending in .toml.", metavar="NAME", autocompletion=_complete_recipe
    ),
]
TrainFiles = Annotated[list[str], argument("Training texts with labels.", metavar="FILE")]
Dev = Annotated[
    str | None, option("Texts to choose the best weights and calibrate on.", metavar="FILE")
]
Resume = Annotated[bool, option("Continue the interrupted run at --out.", "--resume")]
Overwrite = Annotated[bool, option("Replace the model or unfinished run at --out.", "--overwrite")]
OneOrTwoModels = Annotated[
    list[str],
    argument("One or two model directories, and labelled texts.", metavar="MODEL [MODEL2] FILE"),
]
CutOffs = Annotated[str, option("Cut-offs of the metrics, such as 1,3,5.", "--k", "-k")]
TopK = Annotated[
    int | None, option("Labels for each text.", "--k", "-k", metavar="N", min=1, show_default="5")
]
Labels = Annotated[
    str | None, option("Label table (JSONL, CSV, …) or SKOS vocabulary (.ttl, …).", "--labels")
]
BandRanges = Annotated[
    str | None, option("Frequency bands, such as few=1-20,medium=21-100,many=101-.", "--bands")
]

ENGINES = ("processes", "ray")
Engine = Annotated[
    str, option("Where the work is done: processes (this machine) or ray (a Ray cluster).")
]
Address = Annotated[
    str | None,
    option(
        "Ray cluster, as HOST:PORT, ray://HOST:PORT or auto.",
        metavar="ADDRESS",
        show_default="one on this machine, for this command",
    ),
]
Workers = Annotated[int | None, option("Workers on the Ray cluster.", metavar="N", min=1)]

Reading = dict[str, Any]  # options of `glocal.data.readers.read_corpus`


def _reading(
    *,
    skip_bad_rows: Annotated[
        bool, option("Skip rows that cannot be used, and list them.", "--skip-bad-rows")
    ] = False,
    format: Annotated[str, option("File format [default: detected]", show_default=False)] = "auto",
    text_field: Annotated[
        list[str] | None,
        option(
            "Field or column with the text, also nested as in metadata.abstract; repeat it, or put "
            "commas between names, to join several.",
            metavar="NAME",
            show_default="text",
        ),
    ] = None,
    labels_field: Annotated[str, option("Field or column with the labels.")] = "labels",
    id_field: Annotated[str, option("Field or column with the id.")] = "id",
    label_separator: Annotated[
        str | None,
        option("Separator between labels in one string [default: detected]", show_default=False),
    ] = None,
    encoding: Annotated[
        str,
        option("Encoding of text files, such as latin-1 [default: detected]", show_default=False),
    ] = "auto",
) -> Reading:
    """Return the options of how files are read."""
    if label_separator == "":
        raise ConfigError("--label-separator is empty; expected a character such as ; or |")
    names = [name.strip() for given in text_field or ["text"] for name in given.split(",")]
    if not all(names):
        raise ConfigError("--text-field is empty; expected the name of a field")
    return {
        "skip_bad_rows": skip_bad_rows,
        "format": format,
        "text_field": names,
        "labels_field": labels_field,
        "id_field": id_field,
        "label_separator": label_separator,
        "encoding": encoding,
    }


def adds_options(
    collect: Callable[..., Any], argument: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of a function or a class.

    Args:
        collect: A function or class whose keyword arguments are the options.
        argument: The command's argument that receives what `collect` makes of them.
    """
    options = inspect.signature(collect, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            collected = collect(**{name: arguments.pop(name) for name in options})
            command(**arguments, **{argument: collected})

        kept = [p for p in own.parameters.values() if p.name != argument]
        parameters = [*kept, *options.values()]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


reads_files = adds_options(_reading, "reading")


def uses_ray(engine: str, address: str | None) -> bool:
    """Return whether the work is done on a Ray cluster.

    Raises:
        ConfigError: There is no such engine, or the address has no effect.
    """
    if engine not in ENGINES:
        raise ConfigError(no_such("engine", engine, ENGINES))
    if address is not None and engine != "ray":
        raise ConfigError("--address is the address of a Ray cluster; add --engine ray")
    return engine == "ray"


def check_folder(out: Path | None) -> None:
    """Check that a folder for results can be written, before any work is done.

    Raises:
        ConfigError: The path is a file, or the folder cannot be written to.
    """
    if out is None:
        return
    nearest = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ConfigError(f"--out {out}: {nearest} is a file; give a folder or a new name")
    if not os.access(nearest, os.W_OK):
        raise ConfigError(f"--out {out}: {nearest} cannot be written to; choose another place")


def given_text(text: str) -> str:
    """Return the text given as an argument, or on stdin for `-`.

    Raises:
        DataError: The text is empty or not valid Unicode.
    """
    from glocal.data.corpus import surrogate_in

    try:
        content = sys.stdin.buffer.read().decode() if text == "-" else text
    except UnicodeDecodeError as error:
        raise DataError(f"the text on stdin is not UTF-8 (byte {error.start + 1})") from error
    if not content.strip():
        raise DataError("the text is empty; give it as an argument, or - to read it from stdin")
    if problem := surrogate_in(content):
        raise DataError(problem)
    return content


def parse_ks(text: str) -> tuple[int, ...]:
    """Return the cut-offs of a text such as `1,3,5` in ascending order."""
    expected = "whole numbers from 1 on, such as 1,3,5"
    return tuple(sorted(set(parse_numbers(text, "-k", expected, least=1))))


def parse_numbers(text: str, name: str, expected: str, *, least: int = 0) -> list[int]:
    """Parse whole numbers separated by commas; `name` and `expected` are for the error."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least:
        raise ConfigError(f"{name} {text}: expected {expected}")
    return numbers


def choose_k(k: int | None, n_labels: int) -> int:
    """Return the given k, or a default that is never more than the number of labels."""
    return min(DEFAULT_K, n_labels) if k is None else k


def split_models_and_file(
    paths: list[str], *, command: str, most: int | None = None
) -> tuple[list[Path], str]:
    """Split the arguments `MODEL… FILE` into model directories and the data file.

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
