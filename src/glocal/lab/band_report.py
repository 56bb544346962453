"""Performance by label frequency, one or two models side by side: `glocal analyze bands`.

Macro P, R and F at k over the labels of each band (ME-XML Table 3, Appendix B), given twice: over
all labels of a band, and over those with gold in the texts measured on. The conventions are written
down in `docs/concepts/metrics.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.lab.grid import Cell, Column, Grid
from glocal.lab.output import write_analysis
from glocal.lab.plots import Panel, bar_plot
from glocal.predict.evaluation import OVERALL, UNSEEN, EvaluationReport

__all__ = ["BandComparison"]

_SCORES = {"P": "precision", "R": "recall", "F": "f1"}
_GROUPS = {"all_labels": "over all labels", "with_gold": "over labels with gold"}


class BandComparison:
    """Reports of models on the same texts, by band.

    Args:
        reports: Each a model's report and one of its parts, by the name to show; where there are
            two, the second minus the first is shown as well.
        k: Of the macro scores; one of the reports' `ks`.
        source: The texts.
    """

    def __init__(
        self,
        reports: Mapping[str, tuple[EvaluationReport, str]],
        *,
        k: int,
        source: str,
    ) -> None:
        self.k, self.source = k, source
        self.macro = {name: r.parts()[part].macro[k] for name, (r, part) in reports.items()}
        first, _ = next(iter(reports.values()))
        self.note = f"On {first.n_evaluated:,} texts of {source}; labels by their training texts."
        self.bands = [
            band
            for band in dict.fromkeys(b for macro in self.macro.values() for b in macro)
            if band not in (OVERALL, UNSEEN)
        ]

    def grids(self) -> list[Grid]:
        """How many labels each band has, and the scores both ways."""
        return [*(self._scores(group) for group in _GROUPS), self._sizes()]

    def _scores(self, group: str) -> Grid:
        columns = [Column(f"{band} {letter}") for band in self.bands for letter in _SCORES]
        grid = Grid(
            f"Macro P, R and F at {self.k} by training frequency, {_GROUPS[group]}",
            [Column("model", "text"), *columns],
            note=self.note,
        )
        values = {name: self._values(name, group) for name in self.macro}
        grid.rows = [(name, *row) for name, row in values.items()]
        if len(values) == 2:
            first, second = values.values()
            difference = [_minus(b, a) for a, b in zip(first, second, strict=True)]
            grid.rows.append(("difference", *difference))
        return grid

    def _values(self, name: str, group: str) -> list[float | None]:
        found = [getattr(self.macro[name][band], group) for band in self.bands]
        return [getattr(scores, key) for scores in found for key in _SCORES.values()]

    def _sizes(self) -> Grid:
        columns = [Column("model", "text"), Column("band", "text")]
        columns += [Column("labels", "count"), Column("with gold", "count")]
        grid = Grid("Labels of each band", columns)
        for name, macro in self.macro.items():
            for band in self.bands:
                found = macro[band]
                sizes = (found.all_labels.n_labels, found.with_gold.n_labels)
                grid.rows.append((name, band, *sizes))
        return grid

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write Markdown, CSV, JSON and plots into a folder; gives their paths."""
        stem = out / "bands"
        grids = self.grids()
        paths = write_analysis(
            stem, grids, table=self._csv(), document=self.to_dict(), heading="Label frequency"
        )
        if plots:
            for group, words in _GROUPS.items():
                paths += self._plot(stem, group, words)
        return paths

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rows = self._csv()
        names = [column.name for column in rows.columns]
        return {
            "k": self.k,
            "texts": self.source,
            "rows": [dict(zip(names, map(_finite, row), strict=True)) for row in rows.rows],
        }

    def _csv(self) -> Grid:
        names = ("model", "band", "over", "labels", "precision", "recall", "f1")
        grid = Grid("bands", [Column(name) for name in names])
        for name, macro in self.macro.items():
            for band in self.bands:
                for group in _GROUPS:
                    found = getattr(macro[band], group)
                    scores = (found.n_labels, found.precision, found.recall, found.f1)
                    grid.rows.append((name, band, group, *scores))
        return grid

    def _plot(self, stem: Path, group: str, words: str) -> list[Path]:
        panels = [
            Panel(
                f"macro {letter}@{self.k}",
                {
                    name: [100 * getattr(getattr(macro[b], group), key) for b in self.bands]
                    for name, macro in self.macro.items()
                },
            )
            for letter, key in _SCORES.items()
        ]
        return bar_plot(
            stem.with_name(f"{stem.name}-{group.replace('_', '-')}"),
            panels,
            groups=self.bands,
            title=f"By training frequency of the labels, {words}",
            note=self.note,
        )


def _minus(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def _finite(value: Cell) -> Cell:
    """A band without labels has no score: null in JSON."""
    return None if isinstance(value, float) and value != value else value
