"""Macro scores by label frequency, one or two models side by side (`glocal analyze bands`).

Macro P, R and F at k over the labels of each band (ME-XML Table 3, Appendix B), given twice: over
all labels of a band, and over those with gold in the texts measured on. The conventions are written
down in `docs/concepts/metrics.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.lab.analysis import MACRO, Analysis, Macro, band_names, band_table, percent
from glocal.lab.plots import Panel, bar_plot
from glocal.predict.evaluation import EvaluationReport
from glocal.table import Cell, Table, columns

_GROUPS = {"all_labels": "over all labels", "with_gold": "over labels with gold"}


class BandComparison(Analysis):
    """Reports of models on the same texts, by band.

    Args:
        reports: A model's report and the name of one of its parts, by the name to show. Of exactly
            two, the difference is shown as well.
        k: Cut-off of the macro scores; one of the reports' `ks`.
        source: Where the texts are from.
    """

    stem, heading = "bands", "Label frequency"

    def __init__(
        self, reports: Mapping[str, tuple[EvaluationReport, str]], *, k: int, source: str
    ) -> None:
        self.k, self.source = k, source
        self.macro: dict[str, Macro] = {
            name: report.to_dict()["macro"][part][str(k)]
            for name, (report, part) in reports.items()
        }
        first, _ = next(iter(reports.values()))
        self.note = f"On {first.n_evaluated:,} texts of {source}; labels by their training texts."
        self.bands = band_names(self.macro.values())

    def tables(self) -> list[Table]:
        """Return the scores both ways, and how many labels each band has."""
        return [*(self._scores(group) for group in _GROUPS), self._sizes()]

    def _scores(self, group: str) -> Table:
        title = f"Macro P, R and F at {self.k} by training frequency, {_GROUPS[group]}"
        table = band_table(title, "model", list(self.macro.items()), groups=[group], note=self.note)
        if len(table.rows) == 2:
            pairs = list(zip(*table.rows, strict=True))[1:]
            table.rows.append(("difference", *(_minus(second, first) for first, second in pairs)))
        return table

    def _sizes(self) -> Table:
        heads = [*columns("text", "model", "band"), *columns("count", "labels", "with gold")]
        rows = [
            (name, band, *(macro[band][group]["n_labels"] for group in _GROUPS))
            for name, macro in self.macro.items()
            for band in self.bands
        ]
        return Table("Labels of each band", heads, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: a row for each model, band and group."""
        rows = [
            {
                "model": name,
                "band": band,
                "over": group,
                "labels": macro[band][group]["n_labels"],
                **{score: macro[band][group][score] for score in MACRO.values()},
            }
            for name, macro in self.macro.items()
            for band in self.bands
            for group in _GROUPS
        ]
        return {"k": self.k, "texts": self.source, "rows": rows}

    def plot(self, stem: Path) -> list[Path]:
        """Draw bars for each group."""
        paths = []
        for group, words in _GROUPS.items():
            panels = [
                Panel(
                    f"macro {letter}@{self.k}",
                    {
                        name: [percent(macro[band][group][score]) for band in self.bands]
                        for name, macro in self.macro.items()
                    },
                )
                for letter, score in MACRO.items()
            ]
            paths += bar_plot(
                stem.with_name(f"{stem.name}-{group.replace('_', '-')}"),
                panels,
                groups=self.bands,
                title=f"By training frequency of the labels, {words}",
                note=self.note,
            )
        return paths


def _minus(value: Cell, other: Cell) -> float | None:
    both = isinstance(value, float) and isinstance(other, float)
    return value - other if both else None  # type: ignore[operator]
