"""Analyses and their files, and the score tables that several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.config import Recipe
from glocal.data.atomic import write_json, write_text
from glocal.lab.experiment.jobs import Result, Splits
from glocal.predict.evaluation import COMBINED, OVERALL, UNSEEN
from glocal.table import Table, columns

if TYPE_CHECKING:
    from glocal.lab.variant_tables import VariantTable

K = "5"  # cut-off of macro scores
MACRO = {"P": "precision", "R": "recall", "F": "f1"}
GROUPS = {"all_labels": "over all labels of a band", "with_gold": "over labels with gold"}

Macro = Mapping[str, Mapping[str, Mapping[str, float | None]]]  # by band, group and score


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

    def csv_table(self) -> Table:
        """Return the rows of the CSV file: by default those of the JSON file."""
        return Table.from_records(self.heading, self.to_dict()["rows"])

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


@dataclass(eq=False)
class StudyAnalysis(Analysis):
    """An analysis of the variants of a table.

    Args:
        table: The variants.
        recipes: Recipe of each run.
        splits: The texts.
        runs: The results there are.
    """

    table: VariantTable
    recipes: Mapping[str, Recipe]
    splits: Splits
    runs: Sequence[Result]

    def __post_init__(self) -> None:
        self.stem, self.heading = self.table.name, self.table.title
        self.note = f"{self.splits.describe()} {shared_settings(list(self.recipes.values()))}"


def macro_of(result: Result, part: str = COMBINED) -> Macro:
    """Return the macro scores at 5 of a result's part."""
    macro: Macro = result.report["macro"][part][K]
    return macro


def band_names(macros: Iterable[Macro], *, overall: bool = False) -> list[str]:
    """Return the frequency bands in order, without labels that have no training text."""
    skipped = {UNSEEN} if overall else {UNSEEN, OVERALL}
    return [b for b in dict.fromkeys(b for macro in macros for b in macro) if b not in skipped]


def band_table(
    title: str,
    head: str,
    macros: Sequence[tuple[str, Macro]],
    *,
    groups: Sequence[str],
    letters: Sequence[str] = tuple(MACRO),
    overall: bool = False,
    note: str = "",
) -> Table:
    """Make a table of macro scores by band with a row for each name and its scores."""
    bands = band_names((macro for _, macro in macros), overall=overall)
    cells = [(group, band, letter) for group in groups for band in bands for letter in letters]
    names = [f"{band} {letter}" if len(letters) > 1 else band for _, band, letter in cells]
    rows = [
        (name, *(macro[b][group][MACRO[x]] if b in macro else None for group, b, x in cells))
        for name, macro in macros
    ]
    return Table(title, [*columns("text", head), *columns("share", *names)], rows, note)


def percent(value: float | None) -> float | None:
    """Turn a fraction into a percentage for a plot."""
    return None if value is None else 100 * value


def shared_settings(recipes: Sequence[Recipe]) -> str:
    """Say which main settings all recipes have in common."""
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
