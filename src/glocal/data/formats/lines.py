"""Formats with one document per line: Annif's TSV and plain text."""

from __future__ import annotations

from collections.abc import Iterator

from glocal.data.corpus import Document
from glocal.data.formats.rows import Problems, ReadOptions
from glocal.data.formats.source import Source


def read_annif(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream the documents of an Annif corpus: `text<TAB>label label …`, URIs maybe in `<>`."""
    del options
    for line, row in source.lines(problems):
        if not row.strip():
            continue
        text, tab, cell = row.partition("\t")
        if not tab:
            problems.report(
                source.error("no tab in the line; expected text, a tab, then the labels", line)
            )
            continue
        labels = (label.removeprefix("<").removesuffix(">") for label in cell.split())
        yield Document("", text, tuple(dict.fromkeys(label for label in labels if label)), line)


def read_plain(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream a file of texts, one per line, without labels."""
    del options
    for line, text in source.lines(problems):
        yield Document("", text, (), line)
