"""Writes a label table to JSON lines or Parquet, atomically."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.data.atomic import atomic_write
from glocal.data.writers import check_writable_format
from glocal.vocabulary.label_table import LabelTable

_FIELDS = ("id", "name", "description", "parents", "alt_names", "notation")


def write_label_table(table: LabelTable, path: str | Path) -> None:
    """Write a label table; a failure leaves an existing file unchanged.

    Args:
        table: The labels.
        path: A file ending in `.jsonl`, `.jsonl.gz` or `.parquet`.

    Raises:
        ConfigError: The file has another ending.
    """
    check_writable_format(path)
    name = Path(path).name.lower()
    with atomic_write(path) as file:
        if name.endswith(".parquet"):
            columns = dict(zip(_FIELDS, _columns(table), strict=True))
            pq.write_table(pa.table(columns), file, compression="zstd")
        elif name.endswith(".gz"):
            # No time stamp, so that the same table gives the same bytes.
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
                zipped.writelines(_lines(table))
        else:
            file.writelines(_lines(table))


def _columns(table: LabelTable) -> tuple[list[Any], ...]:
    about = (table.names, table.descriptions, table.parents, table.alt_names, table.notations)
    return (table.ids, *about)


def _lines(table: LabelTable) -> Iterator[bytes]:
    """Yield one JSON object for each label, without empty fields."""
    for values in zip(*_columns(table), strict=True):
        row = {name: value for name, value in zip(_FIELDS, values, strict=True) if value}
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"
