"""Parquet, Feather and other Arrow files (`.feather`, `.arrow`), read batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source
from glocal.errors import first_line

FILE, STREAM = b"ARROW1", b"\xff\xff\xff\xff"
MAGIC = (FILE, STREAM)
BATCH_ROWS = 256  # of long texts, some megabytes in Arrow and as many in Python


def parquet_rows(
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
            parquet = pq.ParquetFile(file)
            chosen = _chosen_columns(source, parquet.schema_arrow.names, columns)
            yield from parquet.iter_batches(batch_size=BATCH_ROWS, columns=chosen)

    return _rows_of_batches(source, batches(), "Parquet")


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
                chosen = batch.select(_chosen_columns(source, batch.schema.names, columns))
                for start in range(0, len(batch), BATCH_ROWS):
                    yield chosen.slice(start, BATCH_ROWS)

    return _rows_of_batches(source, batches(), "Feather")


def _all_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    magic = file.read(len(FILE))
    file.seek(0)
    if magic.startswith(STREAM):
        yield from pa.ipc.open_stream(file)
    else:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _chosen_columns(source: Source, names: list[str], columns: Collection[str] | None) -> list[str]:
    """Return those of the names that are among the columns, which are in lower case."""
    chosen = [name for name in names if columns is None or name.lower() in columns]
    if not chosen:
        expected = ", ".join(sorted(columns or ()))
        raise source.error(f"none of the columns {expected} (columns: {', '.join(names)})")
    return chosen


def _rows_of_batches(
    source: Source, batches: Iterable[pa.RecordBatch], kind: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number (from 1) and the fields of each row; damage becomes one clear error.

    Args:
        source: The file.
        batches: Its content, read as they are asked for.
        kind: The name of the format.
    """
    row = 0
    try:
        for batch in batches:
            batch.validate(full=True)
            for values in batch.to_pylist():
                row += 1
                yield row, values
    except UnicodeDecodeError as error:
        raise source.error(
            f"a string in rows {row + 1} to {row + BATCH_ROWS} is not UTF-8; write the "
            "file again from valid text",
            row + 1,
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise source.error(
            f"the {kind} data is truncated or damaged ({first_line(error).rstrip('.')[:120]}); "
            "fetch or write the file again",
            row + 1 if row else None,
        ) from error
