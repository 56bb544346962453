"""`glocal data`: look into data files and split them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from glocal.data.inspect import Distribution, InspectReport, SplitReport

__all__ = ["app"]

app = typer.Typer(name="data", help="Look into data files and split them.", no_args_is_help=True)

MAX_PROBLEMS_SHOWN = 50
PLOT_COLUMNS, PLOT_LINES = 60, 10
BRAILLE_BLANK = 0x2800
# The bit of each of the four by two dots of a braille character.
BRAILLE_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

FormatOption = Annotated[str, typer.Option("--format", help="File format; found out by default.")]
TextFieldOption = Annotated[str, typer.Option(help="Field or column of the text.")]
LabelsFieldOption = Annotated[str, typer.Option(help="Field or column of the labels.")]
IdFieldOption = Annotated[str, typer.Option(help="Field or column of the id.")]
SeparatorOption = Annotated[str, typer.Option(help="What separates labels in one string.")]


@app.command()
def inspect(
    files: Annotated[list[str], typer.Argument(help="Files; the first is the training part.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    bands: Annotated[
        str, typer.Option(help="Frequency bands, such as few=1-20,medium=21-100,many=101-.")
    ] = "",
    labels: Annotated[
        str, typer.Option(help="A label table, such as labels.jsonl, to check as well.")
    ] = "",
    format: FormatOption = "auto",
    text_field: TextFieldOption = "text",
    labels_field: LabelsFieldOption = "labels",
    id_field: IdFieldOption = "id",
    label_separator: SeparatorOption = ";",
) -> None:
    """Show what is in data files and every problem, with file and line.

    The exit status is 1 when there are problems.
    """
    import json

    from glocal.data.inspect import inspect_corpora
    from glocal.data.label_table import read_label_table
    from glocal.vocabulary.bands import Bands

    report = inspect_corpora(
        files,
        bands=Bands.parse(bands) if bands else Bands(),
        label_table=read_label_table(labels) if labels else None,
        format=format,
        text_field=text_field,
        labels_field=labels_field,
        id_field=id_field,
        label_separator=label_separator,
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict(), ensure_ascii=False, indent=2))
    else:
        _show(report, console.stdout())
    if report.problems:
        raise typer.Exit(1)


@app.command()
def split(
    file: Annotated[str, typer.Argument(help="The file to split.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the parts.")],
    fractions: Annotated[
        str, typer.Option(help="Shares of train, dev and test; two for train and test.")
    ] = "0.8,0.1,0.1",
    seed: Annotated[int, typer.Option(help="Selects one of the possible splits.")] = 0,
    output_format: Annotated[
        str, typer.Option("--to", help="Format of the parts: jsonl, jsonl.gz or parquet.")
    ] = "jsonl",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing parts.")] = False,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used.")
    ] = False,
    format: FormatOption = "auto",
    text_field: TextFieldOption = "text",
    labels_field: LabelsFieldOption = "labels",
    id_field: IdFieldOption = "id",
    label_separator: SeparatorOption = ";",
) -> None:
    """Split a file into train, dev and test; rare labels stay in train, equal texts together."""
    from glocal.cli.corpora import read_file
    from glocal.data.split import split_corpus
    from glocal.data.writers import write_corpus

    shares = _parse_fractions(fractions)
    names = ("train", "test") if len(shares) == 2 else ("train", "dev", "test")
    paths = [out / f"{name}.{output_format}" for name in names]
    _check_targets(paths, force=force)
    corpus = read_file(
        file,
        skip_bad_rows=skip_bad_rows,
        format=format,
        text_field=text_field,
        labels_field=labels_field,
        id_field=id_field,
        label_separator=label_separator,
    )
    for part, path in zip(split_corpus(corpus, fractions=shares, seed=seed), paths, strict=True):
        write_corpus(part, path)
        console.note(f"{path}: {len(part):,} documents")


def _parse_fractions(text: str) -> list[float]:
    from glocal.errors import ConfigError

    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) not in (2, 3):
        raise ConfigError(f"--fractions {text!r}: expected two or three numbers as in 0.8,0.1,0.1")
    return shares


def _check_targets(paths: list[Path], *, force: bool) -> None:
    from glocal.data.writers import check_writable_format
    from glocal.errors import ConfigError, DataError

    existing = [str(path) for path in paths if path.exists()]
    for path in paths:
        check_writable_format(path)
    if paths[0].parent.exists() and not paths[0].parent.is_dir():
        raise DataError("is a file, expected a folder for the parts", path=paths[0].parent)
    if existing and not force:
        raise ConfigError(f"{', '.join(existing)} already there; use --force to overwrite")


def _show(report: InspectReport, out: Console) -> None:
    out.print(_counts_table(report))
    for name, split in zip(_short_names(report), report.splits, strict=True):
        out.print(_lengths_table(name, split))
    train = report.splits[0]
    if train.curve:
        out.print(_bands_table(train))
    if len(train.curve) > 1:
        out.print("Label frequencies: number of texts by rank, both logarithmic")
        out.print(_plot(train.curve), markup=False)
    if report.overlaps:
        out.print(_overlap_table(report))
    problems = report.problems
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        out.print(problem, style="red", markup=False, soft_wrap=True)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        out.print("… see all of them with --json")
    n_problems = f"{len(problems):,} problem{'s' if len(problems) > 1 else ''}"
    out.print(n_problems if problems else "No problems")


def _short_names(report: InspectReport) -> list[str]:
    """The splits' paths without the folders that are not needed to tell them apart."""
    paths = [Path(split.source).parts for split in report.splits]
    for n_parts in range(1, max(map(len, paths))):
        short = [str(Path(*parts[-n_parts:])) for parts in paths]
        if len(set(short)) == len(short):
            return short
    return [split.source for split in report.splits]


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table


def _counts_table(report: InspectReport) -> Table:
    table = _table("Counts", "", *_short_names(report))
    rows: dict[str, Callable[[SplitReport], int]] = {
        "documents": lambda split: split.n_documents,
        "  without labels": lambda split: split.n_without_labels,
        "  repeated text": lambda split: split.n_duplicates,
        "  repeated, nearly": lambda split: split.n_near_duplicates,
        "rows with problems": lambda split: len(split.problems),
        "labels": lambda split: split.n_labels,
        "  of a single document": lambda split: split.n_labels_once,
    }
    for name, value in rows.items():
        table.add_row(name, *(f"{value(split):,}" for split in report.splits))
    return table


def _lengths_table(name: str, split: SplitReport) -> Table:
    percentiles = [f"{percentile}%" for percentile in split.words.percentiles]
    table = _table(f"Per document of {name}", "", "mean", "min", *percentiles, "max")
    table.add_row("labels", *_cells(split.labels_per_document))
    table.add_row("words", *_cells(split.words))
    table.add_row("characters", *_cells(split.characters))
    return table


def _cells(spread: Distribution) -> list[str]:
    values = [spread.min, *spread.percentiles.values(), spread.max]
    mean = f"{spread.mean:,.1f}" if spread.mean < 100 else f"{spread.mean:,.0f}"
    return [mean, *(f"{value:,.0f}" for value in values)]


def _bands_table(split: SplitReport) -> Table:
    table = _table("Frequency bands", "band", "labels", "share")
    for name, size in split.bands.items():
        table.add_row(name, f"{size:,}", f"{size / split.n_labels:.1%}")
    return table


def _overlap_table(report: InspectReport) -> Table:
    table = _table(
        f"Shared with {_short_names(report)[0]}",
        "",
        "equal texts",
        "near-duplicates",
        "unseen labels",
        "uses of these",
    )
    for name, overlap in zip(_short_names(report)[1:], report.overlaps, strict=True):
        values = (
            overlap.n_duplicates,
            overlap.n_near_duplicates,
            overlap.n_unseen_labels,
            overlap.n_unseen_uses,
        )
        table.add_row(name, *(f"{value:,}" for value in values))
    return table


def _plot(points: list[tuple[int, int]]) -> str:
    """Draw a curve on logarithmic axes with two dots of braille a character, four a line."""
    import math

    width, height = 2 * PLOT_COLUMNS, 4 * PLOT_LINES
    x_span = math.log(points[-1][0]) or 1.0
    y_span = math.log(points[0][1]) or 1.0
    cells = [[0] * PLOT_COLUMNS for _ in range(PLOT_LINES)]
    for rank, count in points:
        x = round(math.log(rank) / x_span * (width - 1))
        y = height - 1 - round(math.log(count) / y_span * (height - 1))
        cells[y // 4][x // 2] |= BRAILLE_DOTS[y % 4][x % 2]
    margin = len(f"{points[0][1]:,}")
    labels = [f"{points[0][1]:,}", *[""] * (PLOT_LINES - 2), "1"]
    lines = [
        f"{label:>{margin}} ┤{''.join(chr(BRAILLE_BLANK + cell) for cell in row)}"
        for label, row in zip(labels, cells, strict=True)
    ]
    axis = f"{'':>{margin}} └{'─' * PLOT_COLUMNS}"
    ranks = f"{'':>{margin}}  1{points[-1][0]:>{PLOT_COLUMNS - 1},}"
    return "\n".join([*lines, axis, ranks])
