"""Files of tags: JSONL, CSV, TSV, Parquet and Annif's, written as the rows come.

JSONL and Parquet have a row for each document. CSV and TSV have a row for each tag, with the
columns `id`, `rank`, `label`, `name`, `score` and `error`; a document without tags has one row with
an empty label. Annif's format has a line for each tag, `<uri>`, name and score with tabs between
them: one file for each document in a folder, or on stdout a blank line between documents. A file
appears under its name only when it is complete; stdout is flushed after every chunk.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from glocal.control_characters import escape, escape_json
from glocal.data.atomic import atomic_write
from glocal.data.remote import is_remote, write_file
from glocal.errors import ConfigError

TagRow = dict[str, Any]
RowSink = Callable[[Iterable[TagRow]], None]

PARQUET_ROWS = 2048  # rows of a row group
UNSAFE_IN_NAME = re.compile(r'^\.|[\x00-\x1f/\\:*?"<>|\x7f]')
MAX_NAME = 80  # characters of a file name taken from an id


@contextmanager
def open_writer(
    path: str | Path | None, *, to: str | None = None, names: bool = True
) -> Iterator[RowSink]:
    """Open a file of tags; yields a function that writes rows to it.

    Args:
        path: The file, or a folder for Annif's format; None or `-` is stdout.
        to: The format, one of `FORMATS`; by default that of the file's ending, and JSONL on stdout.
            A file whose name ends in `.gz` is compressed.
        names: Whether the rows carry label names.

    Raises:
        ConfigError: The format is unknown or cannot be derived from the file's name.
    """
    name = "-" if path is None else str(path)
    if to == "annif" and name != "-":
        yield _annif_folder_sink(Path(name))
        return
    open_sink = _SINKS[_format(name, to)]
    with _open_file(name) as file, open_sink(file, names) as sink:
        yield sink


@contextmanager
def open_line_writer(
    path: str, *, to: str | None = None, names: bool = True
) -> Iterator[Callable[[bytes], None]]:
    """Open a file of tags; yields a function that writes rows given as lines of JSON.

    Such lines are what a file of JSON lines holds, so that nothing is read for it; arguments and
    errors are those of `open_writer`.
    """
    if _format(path, to) == "jsonl":
        with _open_file(path) as file:

            def copy(lines: bytes) -> None:
                file.write(lines)
                file.flush()  # where `open_writer` does: a compressed file has the same bytes

            yield copy
        return
    with open_writer(path, to=to, names=names) as write:
        yield lambda lines: write(json.loads(line) for line in lines.splitlines())


@contextmanager
def _open_file(name: str) -> Iterator[IO[bytes]]:
    """Open a file that appears when it is complete, compressed if its name says so; or stdout."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with write_file(name) if is_remote(name) else atomic_write(name) as file:
        if not name.endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
            yield packed  # type: ignore[misc]


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
def _jsonl_sink(file: IO[bytes], names: bool) -> Iterator[RowSink]:
    def write(rows: Iterable[TagRow]) -> None:
        for row in rows:
            file.write(jsonl_line(row))
        file.flush()

    yield write


def jsonl_line(row: TagRow) -> bytes:
    """Return a row as a line of JSON."""
    return escape_json(json.dumps(row, ensure_ascii=False)).encode() + b"\n"


@contextmanager
def _delimited_sink(file: IO[bytes], names: bool, *, delimiter: str) -> Iterator[RowSink]:
    columns = ["id", "rank", "label", *(["name"] if names else []), "score", "error"]

    def put(lines: Iterable[Iterable[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(lines)
        content = escape(text.getvalue()) if file.isatty() else text.getvalue()
        file.write(content.encode())
        file.flush()

    put([columns])
    yield lambda rows: put(map(record.get, columns) for row in rows for record in _records(row))


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


@contextmanager
def _annif_sink(file: IO[bytes], names: bool) -> Iterator[RowSink]:
    first = True

    def write(rows: Iterable[TagRow]) -> None:
        nonlocal first
        for row in rows:
            file.write((b"" if first else b"\n") + _annif_lines(row))
            first = False
        file.flush()

    yield write


def _annif_folder_sink(folder: Path) -> RowSink:
    """Return a function that writes one file for each document, named after its id."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: dict[str, int] = {}

    def write(rows: Iterable[TagRow]) -> None:
        for row in rows:
            if "error" in row:  # reported with the others at the end
                continue
            stem = UNSAFE_IN_NAME.sub("_", str(row["id"]))[:MAX_NAME] or "_"
            taken[stem] = taken.get(stem, 0) + 1
            number = f"-{taken[stem]}" if taken[stem] > 1 else ""
            with atomic_write(folder / f"{stem}{number}.annif") as file:
                file.write(_annif_lines(row))

    return write


def _annif_lines(row: TagRow) -> bytes:
    """Return the tags of a document as Annif writes them."""
    lines = []
    for tag in row["labels"]:
        label, name = (escape(" ".join(str(t).split())) for t in (tag["id"], tag.get("name", "")))
        lines.append(f"<{label}>\t{name or label}\t{tag['score']:.4f}\n")
    return "".join(lines).encode()


_SINKS: dict[str, Callable[[IO[bytes], bool], AbstractContextManager[RowSink]]] = {
    "jsonl": _jsonl_sink,
    "csv": partial(_delimited_sink, delimiter=","),
    "tsv": partial(_delimited_sink, delimiter="\t"),
    "parquet": _parquet_sink,
    "annif": _annif_sink,
}
FORMATS = tuple(_SINKS)
