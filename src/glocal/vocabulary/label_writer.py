"""Writes a label table to JSON lines or Parquet, atomically."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from glocal.data.writers import write_rows
from glocal.vocabulary.label_space import DESCRIBED
from glocal.vocabulary.label_table import LabelTable


def write_label_table(table: LabelTable, path: str | Path) -> None:
    """Write a label table; a failure leaves an existing file unchanged.

    Args:
        table: The labels.
        path: A file ending in `.jsonl`, `.jsonl.gz` or `.parquet`.

    Raises:
        ConfigError: The file has another ending.
    """
    columns = {name: getattr(table, column) for column, name in DESCRIBED.items()}
    write_rows(path, table=lambda: pa.table(columns), lines=_lines(columns))


def _lines(columns: Mapping[str, Sequence[Any]]) -> Iterator[bytes]:
    """Yield one JSON object for each label, without empty fields."""
    for values in zip(*columns.values(), strict=True):
        row = {name: value for name, value in zip(columns, values, strict=True) if value}
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"
