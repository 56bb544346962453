"""Analyses and their files: each file is written completely or not at all."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.data.atomic import atomic_write
from glocal.table import Table

__all__ = ["Analysis", "write_json", "write_text"]


class Analysis(ABC):
    """Measurements as tables, files and plots.

    Attributes:
        stem: Name of its files, without an ending.
        heading: Heading of the Markdown file.
    """

    stem: str
    heading: str

    @abstractmethod
    def tables(self) -> list[Table]:
        """Return the tables of the Markdown file."""

    def short_tables(self) -> list[Table]:
        """Return the tables that fit a terminal."""
        return self.tables()

    @abstractmethod
    def csv_table(self) -> Table:
        """Return the rows of the CSV file."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""

    @abstractmethod
    def plot(self, stem: Path) -> list[Path]:
        """Draw the plots; `stem` is their path without an ending."""

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write Markdown, CSV, JSON and plots into a folder; return their paths."""
        stem = out / self.stem
        drawn = "\n".join(table.markdown() for table in self.tables())
        paths = [
            write_text(stem.with_name(f"{self.stem}.md"), f"# {self.heading}\n\n{drawn}"),
            write_text(stem.with_name(f"{self.stem}.csv"), self.csv_table().csv()),
            write_json(stem.with_name(f"{self.stem}.json"), self.to_dict()),
        ]
        return paths + (self.plot(stem) if plots else [])


def write_json(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a JSON file; return its path."""
    return write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write a text file; return its path."""
    with atomic_write(path) as file:
        file.write(text.encode())
    return path
