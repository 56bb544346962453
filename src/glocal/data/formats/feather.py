"""Feather and other Arrow files (`.feather`, `.arrow`), read batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa

from glocal.data.formats.parquet import BATCH_ROWS, chosen_columns, rows_of_batches
from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source

FILE, STREAM = b"ARROW1", b"\xff\xff\xff\xff"
MAGIC = (FILE, STREAM)


def feather_rows(
    source: Source, problems: Problems, columns: Collection[str] | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number (from 1) and the fields of each row.

    Args:
        source: The file.
        problems: Unused: damage concerns the whole file.
        columns: The columns to read if present, in lower case; all by default.
    """
    del problems

    def batches() -> Iterator[pa.RecordBatch]:
        with source.seekable() as file:
            for batch in _all_batches(file):
                chosen = batch.select(chosen_columns(source, batch.schema.names, columns))
                for start in range(0, len(batch), BATCH_ROWS):
                    yield chosen.slice(start, BATCH_ROWS)

    return rows_of_batches(source, batches(), "Feather")


def _all_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    magic = file.read(len(FILE))
    file.seek(0)
    if magic.startswith(STREAM):
        yield from pa.ipc.open_stream(file)
    else:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
