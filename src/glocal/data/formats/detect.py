"""Detection of a file's format, by its name or else by its content."""

from __future__ import annotations

from glocal.data.formats.delimited import read_csv, read_tsv
from glocal.data.formats.huggingface import is_saved_dataset, read_huggingface
from glocal.data.formats.jsonl import read_jsonl
from glocal.data.formats.lines import read_annif, read_plain
from glocal.data.formats.parquet import read_parquet
from glocal.data.formats.rows import TEXT_PARTS, ReadOptions, RowReader
from glocal.data.formats.source import Source
from glocal.data.formats.xmc import (
    is_sparse_header,
    labels_file_of,
    read_xmc_sparse,
    read_xmc_texts,
)
from glocal.errors import ConfigError

FORMATS: dict[str, RowReader] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "annif": read_annif,
    "text": read_plain,
    "xmc-text": read_xmc_texts,
    "xmc-sparse": read_xmc_sparse,
    "huggingface": read_huggingface,
}

BY_ENDING = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


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
        if is_saved_dataset(source) and format in ("auto", "huggingface"):
            return read_huggingface
        raise source.error(
            "is a folder; expected a file or a saved Hugging Face dataset; name a file inside it"
        )
    head = source.head()
    if not head:
        raise source.error("the file is empty")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise source.error(
            "the file is UTF-16, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8", 1
        )
    return FORMATS[_detect(source, head, options) if format == "auto" else format]


def _detect(source: Source, head: bytes, options: ReadOptions) -> str:
    name = source.plain_name
    ending = name[name.rfind(".") :] if "." in name else ""
    if ending in BY_ENDING:
        return BY_ENDING[ending]
    # Checked before the content, as a text may begin with anything.
    if options.labels_path is not None or (not source.is_stdin and labels_file_of(source.path)):
        return "xmc-text"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return "jsonl"
    if is_sparse_header(head):
        return "xmc-sparse"
    return _detect_lines(head, options)


def _detect_lines(head: bytes, options: ReadOptions) -> str:
    """Distinguish TSV with a header, CSV with a header, Annif's TSV and plain text."""
    first = head.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").rstrip("\r")
    text_columns = {options.text_field, *TEXT_PARTS}
    for separator, format in (("\t", "tsv"), (",", "csv")):
        columns = {cell.strip().strip('"') for cell in first.split(separator)}
        if len(columns) > 1 and columns & text_columns:
            return format
    return "annif" if "\t" in first else "text"
