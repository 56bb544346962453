"""Writes a label table to JSON lines or Parquet, atomically."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from glocal.data.writers import write_rows
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
    write_rows(
        path,
        table=lambda: pa.table(dict(zip(_FIELDS, _columns(table), strict=True))),
        lines=_lines(table),
    )


def _columns(table: LabelTable) -> tuple[list[Any], ...]:
    about = (table.names, table.descriptions, table.parents, table.alt_names, table.notations)
    return (table.ids, *about)


def _lines(table: LabelTable) -> Iterator[bytes]:
    """Yield one JSON object for each label, without empty fields."""
    for values in zip(*_columns(table), strict=True):
        row = {name: value for name, value in zip(_FIELDS, values, strict=True) if value}
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"
