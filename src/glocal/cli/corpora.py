"""Reads the files of a subcommand and reports the rows that were skipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.cli import console
from glocal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.vocabulary.label_table import LabelTable

MOST_NAMED = 20  # skipped rows that are listed one by one


def read_file(*paths: str, **reading: Any) -> Corpus:
    """Read one corpus from one or more files and report the rows that were skipped."""
    from glocal.data.readers import read_corpora

    corpus = read_corpora(paths, **reading)
    report_skipped(corpus.skipped)
    return corpus


def report_skipped(problems: Sequence[str], *, verb: str = "skipped") -> None:
    """Print how many rows were not used, and which."""
    if not problems:
        return
    rows = "row was" if len(problems) == 1 else "rows were"
    if verb != "skipped":
        rows = "row" if len(problems) == 1 else "rows"
    shown = [f"  {problem}" for problem in problems[:MOST_NAMED]]
    if len(problems) > MOST_NAMED:
        shown.append(f"  … and {len(problems) - MOST_NAMED:,} more")
    console.warn("\n".join([f"{len(problems):,} {rows} {verb}:", *shown]))


def read_labels_file(path: str | None) -> LabelTable | None:
    """Read a label table or SKOS vocabulary; None without a path."""
    from glocal.vocabulary.label_table import read_label_table

    if path is None:
        return None
    with console.progress_bar("reading the vocabulary", unit="triples") as progress:
        return read_label_table(path, progress=progress)


def read_label_list(path: str | None) -> list[str] | None:
    """Read label ids from a text file, one on each line; None without a file.

    Raises:
        ConfigError: When the file has none.
    """
    if path is None:
        return None
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 (byte {error.start + 1})", path=path) from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise ConfigError(f"{path} is empty; expected label ids, one on each line")
    return ids
