"""Writers of a corpus to JSON lines or Parquet; files are written atomically."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

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
    check_writable_format(path)
    name = Path(path).name.lower()
    with atomic_write(path) as file:
        if name.endswith(".parquet"):
            pq.write_table(corpus.table, file, compression="zstd")
        elif name.endswith(".gz"):
            # No time stamp, so that the same corpus gives the same bytes.
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
                _write_lines(corpus, cast(BinaryIO, zipped))
        else:
            _write_lines(corpus, file)


def _write_lines(corpus: Corpus, file: BinaryIO) -> None:
    buffered = io.BufferedWriter(cast(io.RawIOBase, file), 1 << 20)
    buffered.writelines(_lines(corpus))
    buffered.flush()
    buffered.detach()


def _lines(corpus: Corpus) -> Iterator[bytes]:
    for document in corpus.documents():
        row = {"id": document.id, "text": document.text, "labels": document.labels}
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"
