"""Parquet files, read row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.data.corpus import Document
from glocal.data.formats.rows import Problems, ReadOptions, documents_from_rows
from glocal.data.formats.source import Source

BATCH_ROWS = 1024


def read_parquet(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream the documents of a Parquet file; a line is a row, counted from 1."""
    stand_ins = ["title", "content", "uid", "target_ind"]
    wanted = [options.text_field, options.labels_field, options.id_field, *stand_ins]
    rows = iter_parquet_rows(source, wanted)
    return documents_from_rows(rows, options, problems, path=source.name)


def iter_parquet_rows(
    source: Source, columns: list[str] | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number (from 1) and the fields of each row.

    Args:
        source: The file.
        columns: The columns to read if present; all by default.
    """
    row = 0
    with source.seekable() as file:
        try:
            parquet = pq.ParquetFile(file)
            names = parquet.schema_arrow.names
            chosen = names if columns is None else [name for name in columns if name in names]
            if not chosen:
                raise source.error(f"none of the columns {columns} (columns: {', '.join(names)})")
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=chosen):
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
                f"the Parquet data is truncated or damaged ({_first_line(error)}); "
                "fetch or write the file again",
                row + 1 if row else None,
            ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:120]
