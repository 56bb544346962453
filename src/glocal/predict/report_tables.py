"""Evaluation reports as tables for the terminal: percentages, at most 100 columns wide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glocal.metrics.metric_names import MICRO
from glocal.predict.evaluation import BandScores, EvaluationReport

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["report_tables"]

# Metric columns side by side; nine of the widest still fit 100 columns.
_COLUMNS = 9
_MAIN, _MORE = ("P", "nDCG", "PSP"), ("R", "RP", "PSnDCG")
_Row = tuple[str | int | float, ...]
_BAND_HEADER = ("", "band", "labels", "P", "R", "F1", "with gold", "P", "R", "F1")


@dataclass
class _Grid:
    """A title, a header and rows; numbers are fractions, counts are whole numbers."""

    title: str
    header: tuple[str, ...]
    rows: list[_Row]
    note: str = ""
    text_columns: int = 1


def report_tables(report: EvaluationReport) -> list[Table]:
    """Return the tables of a report in the order to print them."""
    return [_rich_table(grid) for grid in _grids(report)]


# --- grids -----------------------------------------------------------------------------------


def _grids(report: EvaluationReport) -> Iterator[_Grid]:
    scores = {name: part.scores for name, part in report.parts().items()}
    yield from _ranking_grids(report, scores, _MAIN, "Scores", _counts_line(report))
    if report.deduplicated is not None:
        scores_left = {name: part.deduplicated or {} for name, part in report.parts().items()}
        title = "Scores without near-duplicates"
        note = f"{report.n_duplicates:,} near-duplicates of training documents skipped"
        yield from _ranking_grids(report, scores_left, _MAIN, title, note)
    if any(part.gains for part in report.parts().values()):
        yield _gain_grid(report)
    yield from _ranking_grids(report, scores, _MORE, "More scores")
    yield _threshold_grid(report)
    yield _band_grid(report)


def _ranking_grids(
    report: EvaluationReport,
    scores: dict[str, dict[str, float]],
    families: tuple[str, ...],
    title: str,
    note: str = "",
) -> Iterator[_Grid]:
    names = [f"{family}@{k}" for family in families for k in report.ks]
    for start in range(0, len(names), _COLUMNS):
        columns = names[start : start + _COLUMNS]
        rows: list[_Row] = [
            (part, *(values[name] for name in columns)) for part, values in scores.items()
        ]
        yield _Grid(title, ("", *columns), rows, note)


def _gain_grid(report: EvaluationReport) -> _Grid:
    rows: list[_Row] = [
        (name, metric, found.difference, found.low, found.high)
        for name, part in report.parts().items()
        for metric, found in part.gains.items()
    ]
    header = ("combined over", "metric", "gain", "from", "to")
    note = "in points, with 95% intervals by paired bootstrap over the documents"
    return _Grid("Gain from combining experts", header, rows, note, text_columns=2)


def _threshold_grid(report: EvaluationReport) -> _Grid:
    names, parts = ("micro-P", "micro-R", MICRO, "ECE"), report.parts()
    bins = next((part.calibration.bins for part in parts.values() if part.calibration), 0)
    note = f"ECE: {bins} bins, first {max(report.ks)} predictions of each document" if bins else ""
    rows: list[_Row] = [
        (name, *(part.scores[metric] for metric in names)) for name, part in parts.items()
    ]
    title = f"Labels that score at least {report.threshold:g}, and calibration"
    return _Grid(title, ("", *names), rows, note)


def _band_grid(report: EvaluationReport) -> _Grid:
    k = max(report.ks)
    rows = [
        _band_row(name, band, found)
        for name, part in report.parts().items()
        for band, found in part.macro[k].items()
    ]
    title = f"Macro averages at {k} by training frequency of the labels"
    note = "left: over all labels of a band; right: over those with test gold"
    return _Grid(title, _BAND_HEADER, rows, note, text_columns=2)


def _band_row(part: str, band: str, found: BandScores) -> _Row:
    every, gold = found.all_labels, found.with_gold
    return (
        part,
        band,
        every.n_labels,
        every.precision,
        every.recall,
        every.f1,
        gold.n_labels,
        gold.precision,
        gold.recall,
        gold.f1,
    )


def _counts_line(report: EvaluationReport) -> str:
    text = f"{report.n_evaluated:,} documents"
    if report.n_left_out:
        text += f" ({report.n_left_out:,} without gold labels skipped)"
    text += f", {report.n_labels:,} labels"
    if report.n_unseen_gold:
        share = report.n_unseen_gold / report.n_gold
        text += f"; {share:.1%} of gold labels are outside the label space and count as misses"
    return text


# --- drawing ---------------------------------------------------------------------------------


def _rich_table(grid: _Grid) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=grid.title,
        caption=grid.note or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for place, name in enumerate(grid.header):
        table.add_column(
            name,
            justify="left" if place < grid.text_columns else "right",
            no_wrap=place >= grid.text_columns,
        )
    previous = ""
    for row in grid.rows:
        cells = [_cell(value) for value in row]
        # A name stands once above its rows.
        repeated = grid.text_columns > 1 and cells[0] == previous
        previous = cells[0]
        table.add_row(*map(Text, ["" if repeated else cells[0], *cells[1:]]))
    return table


def _cell(value: str | int | float) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if math.isnan(value) else f"{100 * value:.1f}"
