"""`glocal data`: inspect data files, split them, and prepare them for training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_labels_file
from glocal.cli.failures import warning_text
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError
from glocal.table import Column, Table, columns

if TYPE_CHECKING:
    from glocal.data.inspect import InspectReport, SplitReport

app = typer.Typer(
    name="data", help="Inspect data files, split them and prepare them.", no_args_is_help=True
)

MAX_PROBLEMS_SHOWN = 50
PLOT_COLUMNS, PLOT_LINES = 60, 10
BRAILLE_BLANK = 0x2800
# The bit of each of the four by two dots of a braille character.
BRAILLE_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@app.command()
@options.reads_files
def inspect(
    files: Annotated[list[str], argument("Files; the first holds training texts.", metavar="FILE")],
    *,
    bands: options.BandRanges = None,
    labels: options.Labels = None,
    reading: options.Reading,
) -> None:
    """Show the content of data files and every problem in them.

    Each problem comes with its file and line. Warnings concern labels that look wrong.

    The exit status is 1 when there are problems.
    """
    from glocal.data.inspect import inspect_corpora
    from glocal.vocabulary.bands import Bands

    del reading["skip_bad_rows"]  # bad rows are reported in any case
    report = inspect_corpora(
        files,
        bands=Bands.parse(bands) if bands else Bands(),
        label_table=read_labels_file(labels),
        **reading,
    )
    if console.settings.as_json:
        console.print_json(report.to_dict())
    else:
        _show(report)
    if report.problems:
        raise typer.Exit(1)


@app.command()
@options.reads_files
def split(
    files: Annotated[list[str], argument("Files to split, together.", metavar="FILE")],
    *,
    out: Annotated[Path, option("Folder for the parts.", "--out", "-o")],
    fractions: Annotated[
        str, option("Shares of train, dev and test, or of train and test.")
    ] = "0.8,0.1,0.1",
    seed: Annotated[int, option("Random seed.", min=0)] = 0,
    output_format: Annotated[
        str, option("Format of the parts: jsonl, jsonl.gz or parquet.", "--to")
    ] = "jsonl",
    overwrite: Annotated[bool, option("Replace existing parts.", "--overwrite", "--force")] = False,
    reading: options.Reading,
) -> None:
    """Split files into train, dev and test.

    Rare labels stay in train, and equal texts stay together.
    """
    from glocal.cli.corpora import read_file
    from glocal.data.split import split_corpus
    from glocal.data.writers import write_corpus

    shares = _parse_fractions(fractions)
    names = ("train", "test") if len(shares) == 2 else ("train", "dev", "test")
    paths = [out / f"{name}.{output_format}" for name in names]
    _check_targets(paths, overwrite=overwrite)
    corpus = read_file(*files, **reading)
    parts = split_corpus(corpus, fractions=shares, seed=seed)
    for part, path in zip(parts, paths, strict=True):
        write_corpus(part, path)
        console.note(f"{path}: {len(part):,} documents")
    console.show({str(path): len(part) for path, part in zip(paths, parts, strict=True)})


@app.command()
@options.reads_files
def prepare(
    files: options.TrainFiles,
    *,
    recipe: options.RecipeName = "auto",
    override: options.Override = None,
    dev: options.Dev = None,
    labels: options.Labels = None,
    engine: options.Engine = "processes",
    address: options.Address = None,
    workers: options.Workers = None,
    reading: options.Reading,
) -> None:
    """Compute the tokens and words of texts before training.

    They are kept in the cache (GLOCAL_CACHE), where `glocal train` with the same files and recipe
    finds them. With --engine ray texts are tokenised on a cluster whose machines share the cache.
    """
    from glocal.cli.corpora import read_file
    from glocal.config import load_recipe
    from glocal.train.prepare import Preparation, prepare_data

    settings = load_recipe(recipe, override or ())
    on_ray = options.uses_ray(engine, address)
    corpus = read_file(*files, require_labels=True, **reading)
    dev_corpus = read_file(dev, **reading) if dev else None
    texts = Preparation(settings, corpus, dev_corpus, read_labels_file(labels))
    with console.progress_bar("preparing") as progress:
        if on_ray:
            from glocal.cluster.ray_preparation import prepare_on_ray

            found = prepare_on_ray(texts, address=address, workers=workers, progress=progress)
        else:
            found = prepare_data(texts, progress=lambda stage: progress)
    console.show(vars(found))
    words = ", and the model of words" if found.words else ""
    console.note(
        f"Prepared {found.texts:,} texts with {found.labels:,} labels: {found.tokens:,} tokens"
        f"{words}."
    )


def _parse_fractions(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) not in (2, 3):
        raise ConfigError(f"--fractions {text!r}: expected two or three numbers as in 0.8,0.1,0.1")
    return shares


def _check_targets(paths: list[Path], *, overwrite: bool) -> None:
    from glocal.data.writers import check_writable_format

    for path in paths:
        check_writable_format(path)
    options.check_folder(paths[0].parent)
    existing = [str(path) for path in paths if path.exists()]
    if existing and not overwrite:
        raise ConfigError(f"{', '.join(existing)} already exist; add --overwrite to replace them")


def _show(report: InspectReport) -> None:
    out, train = console.stdout(), report.splits[0]
    if any(split.detected for split in report.splits):
        out.print(_detected(report))
    out.print(_counts(report))
    for name, split in zip(_short_names(report), report.splits, strict=True):
        out.print(_lengths(name, split))
    if train.curve:
        heads = [Column("band", "text"), Column("labels", "count"), Column("share, %", "share")]
        rows = [(name, n, n / train.n_labels) for name, n in train.bands.items()]
        out.print(Table("Frequency bands", heads, rows))
    if len(train.curve) > 1:
        out.print("Label frequencies: number of texts by rank, both logarithmic")
        out.print(_plot(train.curve))
    if report.overlaps:
        out.print(_overlaps(report))
    for warning in report.warnings:
        out.print(f"warning: {warning_text(warning)}", style="yellow", soft_wrap=True)
    problems = report.problems
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        out.print(problem, style="red", soft_wrap=True)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        out.print("… --json lists all of them")
    n_problems = f"{len(problems):,} problem{'s' if len(problems) > 1 else ''}"
    counted = [n_problems] if problems else [] if report.warnings else ["No problems"]
    if report.warnings:
        counted.append(f"{len(report.warnings)} warning{'s' if len(report.warnings) > 1 else ''}")
    out.print(", ".join(counted))


def _short_names(report: InspectReport) -> list[str]:
    """Return the paths of the splits without folders that are not needed to tell them apart."""
    paths = [Path(split.source).parts for split in report.splits]
    for n_parts in range(1, max(map(len, paths))):
        short = [str(Path(*parts[-n_parts:])) for parts in paths]
        if len(set(short)) == len(short):
            return short
    return [split.source for split in report.splits]


def _detected(report: InspectReport) -> Table:
    """Return how each file was read."""
    rows = []
    for name, found in (item for split in report.splits for item in split.detected.items()):
        parts = [found["format"], found["compression"], found["encoding"].upper()]
        if found["delimiter"] not in ("", ",") and found["format"] == "csv":
            parts.append(f"columns separated by {found['delimiter']!r}")
        labels = found["labels"]
        if found["label_separator"]:
            labels += f", separated by {found['label_separator']!r}"
        rows.append((Path(name).name, ", ".join(filter(None, parts)), found["text"], labels))
    heads = [Column(head, "text") for head in ("file", "format", "text from", "labels from")]
    return Table("Detected", heads, rows)


def _counts(report: InspectReport) -> Table:
    values: dict[str, Callable[[SplitReport], int]] = {
        "documents": lambda split: split.n_documents,
        "  without labels": lambda split: split.n_without_labels,
        "  repeated text": lambda split: split.n_duplicates,
        "  nearly repeated": lambda split: split.n_near_duplicates,
        "rows with problems": lambda split: len(split.problems),
        "labels": lambda split: split.n_labels,
        "  in one document only": lambda split: split.n_labels_once,
    }
    rows = [(name, *map(value, report.splits)) for name, value in values.items()]
    return Table("Counts", [Column("", "text"), *columns("count", *_short_names(report))], rows)


def _lengths(name: str, split: SplitReport) -> Table:
    percentiles = [f"{percentile}%" for percentile in split.words.percentiles]
    spreads = {
        "labels": split.labels_per_document,
        "words": split.words,
        "characters": split.characters,
    }
    rows = [
        (kind, spread.mean, spread.min, *spread.percentiles.values(), spread.max)
        for kind, spread in spreads.items()
    ]
    heads = [Column("", "text"), *columns("number", "mean", "min", *percentiles, "max")]
    return Table(f"Per document of {name}", heads, rows)


def _overlaps(report: InspectReport) -> Table:
    first, *others = _short_names(report)
    names = ("equal texts", "near-duplicates", "unseen labels", "uses of these")
    rows = [
        (name, o.n_duplicates, o.n_near_duplicates, o.n_unseen_labels, o.n_unseen_uses)
        for name, o in zip(others, report.overlaps, strict=True)
    ]
    return Table(f"Shared with {first}", [Column("", "text"), *columns("count", *names)], rows)


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
