"""Writing an analysis: Markdown, CSV and JSON under one name, each complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal.config import Recipe
from glocal.data.atomic import atomic_write
from glocal.lab.grid import Grid

__all__ = ["budget", "write_analysis", "write_text"]


def budget(recipes: Sequence[Recipe]) -> str:
    """What every variant was given, and what differs between them is left out."""
    facts: dict[str, set[Any]] = {
        "encoder {}": {r.encoder.name for r in recipes},
        "{} tokens": {r.encoder.tokens_read for r in recipes},
        "{} epochs": {r.train.epochs for r in recipes},
        "batches of {}": {r.train.batch_size for r in recipes},
        "seed {}": {r.train.seed for r in recipes},
        "candidates {}": {r.candidates.mode for r in recipes},
    }
    shared = [text.format(*values) for text, values in facts.items() if len(values) == 1]
    return f"Budget of every variant: {', '.join(shared)}."


def write_analysis(
    stem: Path, grids: Sequence[Grid], *, table: Grid, document: Mapping[str, Any], heading: str
) -> list[Path]:
    """Write STEM.md, STEM.csv and STEM.json.

    Args:
        stem: The path without its ending.
        grids: Shown in the Markdown file.
        table: The CSV file.
        document: The JSON file.
        heading: Of the Markdown file.
    """
    markdown = f"# {heading}\n\n" + "\n".join(grid.markdown() for grid in grids)
    texts = {
        ".md": markdown,
        ".csv": table.csv(),
        ".json": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
    }
    return [write_text(stem.with_name(stem.name + end), text) for end, text in texts.items()]


def write_text(path: Path, text: str) -> Path:
    """Write a text file, complete or not at all."""
    with atomic_write(path) as file:
        file.write(text.encode())
    return path
