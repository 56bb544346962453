"""Annif's full-text folders: each `NAME.txt` is a document, with its labels in a file beside it.

- `NAME.tsv` has one subject per line, `<uri>`, a tab and a name; the URI is the label.
- `NAME.key` has one label per line, and is read where there is no `.tsv`.
- A text without either has no labels. The id of a document is NAME.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from glocal.data.corpus import Document
from glocal.data.formats import file_kinds
from glocal.data.formats.fields import ReadOptions
from glocal.data.formats.rows import Problems
from glocal.data.formats.source import MAX_LINE_BYTES, Source
from glocal.errors import DataError


def is_annif_folder(source: Source) -> bool:
    """Return whether a folder holds texts."""
    return next(source.path.glob("*.txt"), None) is not None


def read_annif_folder(
    source: Source, options: ReadOptions, problems: Problems
) -> Iterator[Document]:
    """Stream the documents of a folder, in the order of their names."""
    del options
    for row, path in enumerate(sorted(source.path.glob("*.txt")), 1):
        try:
            yield Document(path.stem, _text(path), _labels(path), row)
        except DataError as error:
            error.document_id = path.stem
            problems.report(error)


def _text(path: Path) -> str:
    source = Source(path)
    if kind := file_kinds.other_kind(source.head()):
        raise source.error(f"the file is {kind}")
    parts: list[str] = []
    for block in source.text_blocks():
        parts.append(block)
        if sum(map(len, parts)) > MAX_LINE_BYTES:
            raise source.error(f"the text is longer than {MAX_LINE_BYTES >> 20} MiB")
    text = "".join(parts).removeprefix("\ufeff").strip()
    if not text:
        raise source.error("the text is empty; remove the file or give it a text")
    return text


def _labels(path: Path) -> tuple[str, ...]:
    if (subjects := path.with_suffix(".tsv")).is_file():
        cells = (line.partition("\t")[0] for _, line in Source(subjects).lines(Problems()))
    elif (keys := path.with_suffix(".key")).is_file():
        cells = (line for _, line in Source(keys).lines(Problems()))
    else:
        return ()
    labels = (cell.strip().removeprefix("<").removesuffix(">").strip() for cell in cells)
    return tuple(dict.fromkeys(label for label in labels if label))
