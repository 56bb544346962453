"""Detection of a file's format, by its content or its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from glocal.data.corpus import Document
from glocal.data.formats import arrow_files, file_kinds
from glocal.data.formats.annif_folder import is_annif_folder, read_annif_folder
from glocal.data.formats.delimited import csv_rows, detect_delimiter, header_names, tsv_rows
from glocal.data.formats.encodings import keeps_line_breaks
from glocal.data.formats.fields import ReadOptions
from glocal.data.formats.huggingface import is_saved_dataset, read_huggingface
from glocal.data.formats.jsonl import json_rows
from glocal.data.formats.lines import looks_like_fasttext, read_annif, read_fasttext, read_plain
from glocal.data.formats.rows import Problems, RowReader, documents_from_rows
from glocal.data.formats.source import Source
from glocal.data.formats.xmc import (
    is_sparse_header,
    labels_file_of,
    read_xmc_sparse,
    read_xmc_texts,
)
from glocal.errors import ConfigError

TableRows = Callable[
    [Source, Problems, Collection[str] | None], Iterator[tuple[int, Mapping[str, Any]]]
]
# Formats whose rows have fields with names.
TABLES: dict[str, TableRows] = {
    "jsonl": json_rows,
    "csv": csv_rows,
    "tsv": tsv_rows,
    "parquet": arrow_files.parquet_rows,
    "feather": arrow_files.feather_rows,
}


def _documents_of(rows: TableRows) -> RowReader:
    def read(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
        stream = rows(source, problems, options.known_names())
        return documents_from_rows(stream, options, problems, source)

    return read


FORMATS: dict[str, RowReader] = {
    **{name: _documents_of(rows) for name, rows in TABLES.items()},
    "annif": read_annif,
    "fasttext": read_fasttext,
    "text": read_plain,
    "xmc-text": read_xmc_texts,
    "xmc-sparse": read_xmc_sparse,
    "huggingface": read_huggingface,
    "annif-folder": read_annif_folder,
}
BINARY = ("parquet", "feather")

BY_ENDING = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
}
JSON_START = re.compile(r"\s*(?:\[\s*)?\{")


def reader_for(source: Source, format: str, options: ReadOptions) -> RowReader:
    """Return the function that reads a source.

    Args:
        source: The source to read.
        format: One of `FORMATS`, or `auto` to detect it.
        options: Names of the columns.

    Raises:
        ConfigError: There is no such format.
        DataError: The source is empty, a folder, or of an unknown format.
    """
    if format not in ("auto", *FORMATS):
        known = ", ".join(["auto", *FORMATS])
        raise ConfigError(f"unknown data format {format!r}; expected one of {known}")
    if source.is_dir:
        return _folder_reader(source, format)
    if format == "annif-folder":
        raise source.error("is a file; expected a folder of .txt files")
    head = source.head()
    if not head:
        raise source.error("the file is empty")
    if format == "auto":
        format = _detect(source, head, options)
    _check_kind(source, head, format)
    _note_format(source, format)
    return FORMATS[format]


def _folder_reader(source: Source, format: str) -> RowReader:
    kinds = {"huggingface": is_saved_dataset, "annif-folder": is_annif_folder}
    for name, recognises in kinds.items():
        if format in ("auto", name) and recognises(source):
            source.findings.format = name
            return FORMATS[name]
    raise source.error(
        "is a folder; expected a file, a folder of .txt files or a saved Hugging Face dataset; "
        "name a file inside it"
    )


def table_rows(
    source: Source, problems: Problems, columns: Collection[str], *, example: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the line and the fields of each row of a table in any of the `TABLES`.

    Args:
        source: The file.
        problems: Collects or raises the errors of bad rows.
        columns: Names of columns in lower case that the table may have.
        example: A row as JSON, shown in messages.

    Raises:
        DataError: The file is empty, or not a table.
    """
    head = source.head()
    if not head:
        raise source.error(f"the file is empty; expected rows such as {example}")
    format = _table_format(source, head, columns)
    if format is None:
        format = "tsv" if source.plain_name.endswith(".tsv") else "jsonl"
    _check_kind(source, head, format)
    _note_format(source, format)
    if format == "jsonl":
        return json_rows(source, problems, example=example)
    return TABLES[format](source, problems, None if format in BINARY else columns)


def _note_format(source: Source, format: str) -> None:
    source.findings.format = format
    source.findings.encoding = "" if format in BINARY else source.encoding


def _check_kind(source: Source, head: bytes, format: str) -> None:
    """Raise an error that says what a file is if it cannot hold rows of texts."""
    kind = file_kinds.other_kind(head)
    if not kind and format not in BINARY:
        if keeps_line_breaks(source.encoding) and file_kinds.is_binary(head):
            kind = "binary data of an unknown kind; expected JSON lines, CSV, Parquet or plain text"
        elif format == "text":
            kind = file_kinds.markup_kind(head)
    if kind:
        raise source.error(f"the file is {kind}")


def _detect(source: Source, head: bytes, options: ReadOptions) -> str:
    if _ending(source) not in BY_ENDING:
        # Checked before the content, as a text may begin with anything.
        has_labels_file = not source.is_stdin and labels_file_of(source.path) is not None
        if options.labels_path is not None or has_labels_file:
            return "xmc-text"
        if is_sparse_header(head):
            return "xmc-sparse"
        if looks_like_fasttext(source.text_head()):
            return "fasttext"
    format = _table_format(source, head, options.text_columns())
    if format is not None:
        return format
    first, _, _ = source.text_head().partition("\n")
    return "annif" if "\t" in first else "text"


def _table_format(source: Source, head: bytes, columns: Collection[str]) -> str | None:
    """Return the format of a table, or None if the file does not look like one.

    Args:
        source: The file.
        head: Its first bytes.
        columns: Names in lower case of which the header has at least one.
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(arrow_files.MAGIC):
        return "feather"
    if (ending := _ending(source)) in BY_ENDING:
        return BY_ENDING[ending]
    text = source.text_head()
    if JSON_START.match(text):
        return "jsonl"
    header, _, _ = text.partition("\n")
    delimiter = detect_delimiter(header, columns)
    names = header_names(header, delimiter)
    if len(names) < 2 or not set(names) & set(columns):
        return None
    return "tsv" if delimiter == "\t" else "csv"


def _ending(source: Source) -> str:
    _, dot, ending = source.plain_name.rpartition(".")
    return dot + ending
