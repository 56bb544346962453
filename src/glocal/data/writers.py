"""Writers of a corpus to JSON lines or Parquet; files are written atomically."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.data.atomic import atomic_write
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")


def check_writable_format(path: str | Path) -> None:
    """Check that the ending of a file name is a format that can be written.

    Raises:
        ConfigError: It does not end in `.jsonl`, `.jsonl.gz` or `.parquet`.
    """
    if not Path(path).name.lower().endswith(ENDINGS):
        raise ConfigError(f"cannot write {path}: expected a name ending in {', '.join(ENDINGS)}")


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write a corpus; a failure leaves an existing file unchanged.

    Args:
        corpus: The documents.
        path: A file ending in `.jsonl`, `.jsonl.gz` or `.parquet`.

    Raises:
        ConfigError: The file has another ending.
    """
    write_rows(path, table=lambda: corpus.table, lines=_lines(corpus))


def write_rows(path: str | Path, *, table: Callable[[], pa.Table], lines: Iterable[bytes]) -> None:
    """Write rows in the format of the file's ending; a failure leaves an existing file unchanged.

    Args:
        path: A file ending in `.jsonl`, `.jsonl.gz` or `.parquet`.
        table: Returns the rows for Parquet.
        lines: The rows as lines of JSON.

    Raises:
        ConfigError: The file has another ending.
    """
    check_writable_format(path)
    name = Path(path).name.lower()
    with atomic_write(path) as file:
        if name.endswith(".parquet"):
            pq.write_table(table(), file, compression="zstd")
        elif name.endswith(".gz"):
            # No time stamp, so that the same rows give the same bytes.
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
                _write_lines(lines, cast(BinaryIO, zipped))
        else:
            _write_lines(lines, file)


def _write_lines(lines: Iterable[bytes], file: BinaryIO) -> None:
    buffered = io.BufferedWriter(cast(io.RawIOBase, file), 1 << 20)
    buffered.writelines(lines)
    buffered.flush()
    buffered.detach()


def _lines(corpus: Corpus) -> Iterator[bytes]:
    for document in corpus.documents():
        row = {"id": document.id, "text": document.text, "labels": document.labels}
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"
