"""Formats with one document per line: Annif's TSV, fastText's files and plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glocal.data.corpus import Document
from glocal.data.formats.fields import ReadOptions
from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source

FASTTEXT_PREFIX = "__label__"
FASTTEXT_LABEL = re.compile(rf"(?:^|(?<=\s)){FASTTEXT_PREFIX}(\S+)\s*")
FASTTEXT_LINES = 20  # lines that decide whether a file is one of fastText's


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


def read_fasttext(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream the documents of a fastText file: `__label__a __label__b text`."""
    del options
    for line, row in source.lines(problems):
        if row.strip():
            labels = dict.fromkeys(FASTTEXT_LABEL.findall(row))
            text = FASTTEXT_LABEL.sub(" ", row).strip()
            yield Document("", text, tuple(labels), line)


def looks_like_fasttext(head: str) -> bool:
    """Return whether most lines of a file that begins with `head` start with a label."""
    lines = [line for line in head.splitlines()[:FASTTEXT_LINES] if line.strip()]
    return 2 * sum(line.lstrip().startswith(FASTTEXT_PREFIX) for line in lines) > len(lines)


def read_plain(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream a file of texts, one per line, without labels."""
    del options
    for line, text in source.lines(problems):
        yield Document("", text, (), line)
