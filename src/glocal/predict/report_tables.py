"""Evaluation reports as tables: for the terminal (rich) and as Markdown.

Both are made from the same plain grids. Terminal tables show percentages with one decimal and stay
within 100 columns; Markdown shows two decimals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glocal.metrics.metric_names import MICRO
from glocal.predict.evaluation import BandScores, EvaluationReport

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["report_markdown", "report_tables"]

# Metric columns side by side; nine of the widest still fit 100 columns.
_COLUMNS = 9
_MAIN, _MORE = ("P", "nDCG", "PSP"), ("R", "RP", "PSnDCG")
_BAND_HEADER = ("", "band", "labels", "P", "R", "F1", "with gold", "P", "R", "F1")


@dataclass
class _Grid:
    """A title, a header and rows; numbers are fractions, counts are whole numbers."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str | int | float, ...]] = field(default_factory=list)
    note: str = ""
    text_columns: int = 1


def report_tables(report: EvaluationReport) -> list[Table]:
    """Tables of a report for the terminal, in the order to print them."""
    return [_rich_table(grid) for grid in _grids(report)]


def report_markdown(report: EvaluationReport) -> str:
    """A report as Markdown tables, with its notes and warnings."""
    parts = [_markdown_table(grid) for grid in _grids(report)]
    parts += [f"Note: {warning}." for warning in report.warnings]
    return "\n\n".join(parts) + "\n"


# --- grids -----------------------------------------------------------------------------------


def _grids(report: EvaluationReport) -> Iterator[_Grid]:
    title, note = "Scores", _counts_line(report)
    yield from _ranking_grids(report.scores, _metric_names(report, _MAIN), title, note)
    if report.deduplicated is not None:
        title = "Scores without near-duplicates"
        note = f"{report.n_duplicates:,} near-duplicates of training documents left out"
        yield from _ranking_grids(report.deduplicated, _metric_names(report, _MAIN), title, note)
    if report.gains:
        yield _gain_grid(report)
    names = _metric_names(report, _MORE)
    yield from _ranking_grids(report.scores, names, "More scores")
    yield _threshold_grid(report)
    yield _band_grid(report)


def _metric_names(report: EvaluationReport, families: tuple[str, ...]) -> list[str]:
    return [f"{family}@{k}" for family in families for k in report.ks]


def _ranking_grids(
    scores: Mapping[str, Mapping[str, float]], names: list[str], title: str, note: str = ""
) -> Iterator[_Grid]:
    for start in range(0, len(names), _COLUMNS):
        part = names[start : start + _COLUMNS]
        rows: list[tuple[str | int | float, ...]] = [
            (expert, *(values[name] for name in part)) for expert, values in scores.items()
        ]
        yield _Grid(title, ("", *part), rows, note)


def _gain_grid(report: EvaluationReport) -> _Grid:
    rows: list[tuple[str | int | float, ...]] = [
        (expert, metric, found.difference, found.low, found.high)
        for expert, by_metric in report.gains.items()
        for metric, found in by_metric.items()
    ]
    header = ("combined over", "metric", "gain", "from", "to")
    note = "in points, with 95% intervals by paired bootstrap over the documents"
    return _Grid("What combining brings", header, rows, note, text_columns=2)


def _threshold_grid(report: EvaluationReport) -> _Grid:
    names = ("micro-P", "micro-R", MICRO, "ECE")
    bins = next((error.bins for error in report.calibration.values() if error), 0)
    note = f"ECE: {bins} bins, first {max(report.ks)} predictions of each document" if bins else ""
    rows: list[tuple[str | int | float, ...]] = [
        (expert, *(values[name] for name in names)) for expert, values in report.scores.items()
    ]
    title = f"Labels that score at least {report.threshold:g}, and calibration"
    return _Grid(title, ("", *names), rows, note)


def _band_grid(report: EvaluationReport) -> _Grid:
    k = max(report.ks)
    rows = [
        _band_row(expert, band, found)
        for expert, by_k in report.macro.items()
        for band, found in by_k[k].items()
    ]
    title = f"Macro averages at {k} by training frequency of the labels"
    note = "left: over all labels of a band; right: over those with test gold"
    return _Grid(title, _BAND_HEADER, rows, note, text_columns=2)


def _band_row(expert: str, band: str, found: BandScores) -> tuple[str | int | float, ...]:
    every, gold = found.all_labels, found.with_gold
    return (
        expert,
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
        text += f" ({report.n_left_out:,} without gold labels left out)"
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
        cells = [_cell(value, 1) for value in row]
        # A name stands once above its rows.
        repeated = grid.text_columns > 1 and cells[0] == previous
        previous = cells[0]
        table.add_row(*map(Text, ["" if repeated else cells[0], *cells[1:]]))
    return table


def _markdown_table(grid: _Grid) -> str:
    rule = ["---" if place < grid.text_columns else "---:" for place in range(len(grid.header))]
    rows = [[_cell(value, 2).replace("|", "\\|") for value in row] for row in grid.rows]
    lines = [f"| {' | '.join(row)} |" for row in [list(grid.header), rule, *rows]]
    note = f"\n\n{grid.note}." if grid.note else ""
    return f"**{grid.title}**\n\n" + "\n".join(lines) + note


def _cell(value: str | int | float, decimals: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if math.isnan(value) else f"{100 * value:.{decimals}f}"
