"""Files of tags: JSONL, CSV, TSV and Parquet, written as the rows come.

JSONL and Parquet have a row for each document. CSV and TSV have a row for each tag, with the
columns `id`, `rank`, `label`, `name`, `score` and `error`; a document without tags has one row with
an empty label. A file appears under its name only when it is complete; stdout is flushed after
every chunk.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

from glocal.control_characters import escape, escape_json
from glocal.data.atomic import atomic_write
from glocal.errors import ConfigError

TagRow = dict[str, Any]
RowSink = Callable[[Iterable[TagRow]], None]

PARQUET_ROWS = 2048  # rows of a row group


@contextmanager
def open_writer(
    path: str | Path | None, *, to: str | None = None, names: bool = True
) -> Iterator[RowSink]:
    """Open a file of tags; yields a function that writes rows to it.

    Args:
        path: The file; None or `-` is stdout.
        to: The format, one of `FORMATS`; by default that of the file's ending, and JSONL on stdout.
            A file whose name ends in `.gz` is compressed.
        names: Whether the rows carry label names.

    Raises:
        ConfigError: The format is unknown or cannot be derived from the file's name.
    """
    name = "-" if path is None else str(path)
    open_sink = _SINKS[_format(name, to)]
    if name == "-":
        with open_sink(sys.stdout.buffer, names) as sink:
            yield sink
        sys.stdout.buffer.flush()
        return
    with (
        atomic_write(name) as file,
        _packed(file, name) as target,
        open_sink(target, names) as sink,
    ):
        yield sink


def _format(name: str, to: str | None) -> str:
    if to is None:
        to = "jsonl" if name == "-" else name.removesuffix(".gz").rpartition(".")[2]
    if to not in _SINKS or (to == "parquet" and name.endswith((".gz", "-"))):
        raise ConfigError(
            f"cannot write tags to '{name}' as {to or 'a file without an ending'}: expected "
            f"{', '.join(_SINKS)}, with .gz after it for a compressed file (except parquet)"
        )
    return to


@contextmanager
def _packed(file: BinaryIO, name: str) -> Iterator[IO[bytes]]:
    if not name.endswith(".gz"):
        yield file
        return
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        yield packed  # type: ignore[misc]


@contextmanager
def _jsonl_sink(file: IO[bytes], names: bool) -> Iterator[RowSink]:
    def write(rows: Iterable[TagRow]) -> None:
        for row in rows:
            line = escape_json(json.dumps(row, ensure_ascii=False))
            file.write(line.encode() + b"\n")
        file.flush()

    yield write


@contextmanager
def _delimited_sink(file: IO[bytes], names: bool, *, delimiter: str) -> Iterator[RowSink]:
    columns = ["id", "rank", "label", *(["name"] if names else []), "score", "error"]

    def put(records: Iterable[TagRow]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, delimiter=delimiter, lineterminator="\n")
        if records is header:
            writer.writeheader()
        else:
            writer.writerows(records)
        content = escape(text.getvalue()) if file.isatty() else text.getvalue()
        file.write(content.encode())
        file.flush()

    header: list[TagRow] = []
    put(header)
    yield lambda rows: put(record for row in rows for record in _records(row))


def _records(row: TagRow) -> Iterator[TagRow]:
    """Yield the tags of a row, or one record without a label."""
    document = {"id": row["id"], "error": row.get("error")}
    if not row["labels"]:
        yield document
    for rank, tag in enumerate(row["labels"], 1):
        yield {**document, **tag, "id": row["id"], "label": tag["id"], "rank": rank}


@contextmanager
def _parquet_sink(file: IO[bytes], names: bool) -> Iterator[RowSink]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name_field = [("name", pa.string())] if names else []
    tag = pa.struct([("id", pa.string()), *name_field, ("score", pa.float32())])
    columns = [("id", pa.string()), ("labels", pa.list_(tag)), ("error", pa.string())]
    schema = pa.schema(columns)
    with pq.ParquetWriter(file, schema) as writer:

        def write(rows: Iterable[TagRow]) -> None:
            stream = iter(rows)
            while chunk := list(itertools.islice(stream, PARQUET_ROWS)):
                writer.write_table(pa.Table.from_pylist(chunk, schema=schema))

        yield write


_SINKS: dict[str, Callable[[IO[bytes], bool], AbstractContextManager[RowSink]]] = {
    "jsonl": _jsonl_sink,
    "csv": partial(_delimited_sink, delimiter=","),
    "tsv": partial(_delimited_sink, delimiter="\t"),
    "parquet": _parquet_sink,
}
FORMATS = tuple(_SINKS)
