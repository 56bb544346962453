"""The results of a benchmark as tables, Markdown and one HTML file.

The HTML file needs nothing beside it: style and plots are in it, light or dark as the reader's
system is. `glocal benchmark --report-only` writes all three again from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from glocal.errors import ConfigError, did_you_mean
from glocal.lab.benchmark.benchmark_documents import load_document_scores
from glocal.lab.benchmark.benchmark_plot import Point, scatter
from glocal.lab.benchmark.benchmark_rows import RECIPE, Row, save_json
from glocal.lab.grid import Cell, Column, Grid
from glocal.lab.output import write_text
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap

__all__ = ["ResultsPage", "check_metric", "comparison_grid", "cost_grid", "row_grids"]

HEADING = "Benchmark"
_SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "RP@5", "PSP@1", "PSP@3", "PSP@5")
_FRESH = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
_METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5", "RP@5")
_K = "5"  # of macro scores
_GROUPS = {"all_labels": "over all labels of a band", "with_gold": "over labels with gold"}
_MB = 1e6


def row_grids(rows: Sequence[Row]) -> list[Grid]:
    """Quality: all documents, without near-duplicates, by label frequency."""
    return [_quality_grid(rows), *_fresh_grids(rows), *_band_grids(rows)]


def _quality_grid(rows: Sequence[Row]) -> Grid:
    grid = Grid("Quality (test)", [Column("method", "text"), *map(Column, _SHOWN)])
    grid.rows = [(row.contender.title, *(row.score(name) for name in _SHOWN)) for row in rows]
    return grid


def _fresh_grids(rows: Sequence[Row]) -> list[Grid]:
    removed = {row.report["documents"]["near_duplicates"] for row in rows}
    if not rows or not any(removed):
        return []
    grid = Grid(
        "Without near-duplicates of training texts",
        [Column("method", "text"), *map(Column, _FRESH)],
        note=f"{max(removed):,} texts are left out here.",
    )
    for row in rows:
        scores = [row.score(name, deduplicated=True) for name in _FRESH]
        grid.rows.append((row.contender.title, *scores))
    return [grid]


def _band_grids(rows: Sequence[Row]) -> list[Grid]:
    """Macro scores by band, over all labels of it and over those with gold."""
    macros = [row.report["macro"]["combined"][_K] for row in rows]
    bands = [b for b in dict.fromkeys(b for m in macros for b in m) if b != "unseen"]
    grids = []
    for group, words in _GROUPS.items():
        grid = Grid(
            f"Macro-F1 at {_K} by training frequency, {words}",
            [Column("method", "text"), *map(Column, bands)],
        )
        for row, macro in zip(rows, macros, strict=True):
            values = [macro[band][group]["f1"] if band in macro else None for band in bands]
            grid.rows.append((row.contender.title, *values))
        grids.append(grid)
    return grids


def cost_grid(rows: Sequence[Row]) -> Grid:
    """Seconds, memory, size and speed."""
    numbers = ["train s", "CPU s", "peak MB", "GPU MB", "model MB", "one text ms", "texts/s"]
    if not any(row.cost.get("gpu_bytes") for row in rows):
        numbers.remove("GPU MB")
    grid = Grid(
        "Cost",
        [Column("method", "text"), *(Column(name, "number") for name in numbers)],
        note=_cost_note(rows),
    )
    for row in rows:
        cost = row.cost
        values: dict[str, Cell] = {
            "train s": cost["train_seconds"],
            "CPU s": cost["cpu_seconds"],
            "peak MB": _megabytes(cost["peak_bytes"]),
            "GPU MB": _megabytes(cost.get("gpu_bytes")),
            "model MB": _megabytes(cost["model_bytes"]),
            "one text ms": cost["latency_ms"],
            "texts/s": cost["docs_per_second"],
        }
        grid.rows.append((row.contender.title, *(values[name] for name in numbers)))
    return grid


def _cost_note(rows: Sequence[Row]) -> str:
    texts = max((row.cost["latency_texts"] for row in rows), default=0)
    batch = max((row.cost["batch_texts"] for row in rows), default=0)
    return (
        "Training is from texts to a model on disk, features or tokens included; peak memory is of "
        "the process, training and prediction; one text is the median of "
        f"{texts} warm texts, texts/s one call with {batch:,}."
    )


def comparison_grid(comparison: Mapping[str, BootstrapResult], title: str) -> Grid:
    """Differences of metrics with their intervals."""
    columns = [Column(name, "points") for name in ("difference", "from", "to")]
    grid = Grid(
        title,
        [Column("metric", "text"), *columns, Column("p", "number")],
        note="In points, with 95% intervals by paired bootstrap over the test texts.",
    )
    grid.rows = [
        (metric, found.difference, found.low, found.high, found.p_value)
        for metric, found in comparison.items()
    ]
    return grid


def check_metric(metric: str) -> None:
    """Refuse a metric that is not kept for every document.

    Raises:
        ConfigError: With the nearest one that is.
    """
    if metric not in _METRICS:
        raise ConfigError(
            f"rows cannot be ordered by '{metric}'{did_you_mean(metric, _METRICS)}; take one of "
            f"{', '.join(_METRICS)}"
        )


def _plain_titles(rows: Sequence[Row]) -> tuple[list[Row], Sequence[str]]:
    """Settings changed in all recipes alike are said once and not in every row."""
    changed = {tuple(row.contender.overrides) for row in rows if row.contender.kind == RECIPE}
    if len(changed) != 1 or not any(changed):
        return list(rows), ()
    plain = [
        replace(row, contender=replace(row.contender, title=row.contender.name))
        if row.contender.kind == RECIPE
        else row
        for row in rows
    ]
    return plain, changed.pop()


class ResultsPage:
    """The rows of a results folder, best first.

    Args:
        rows: Finished and failed ones.
        manifest: What they have in common.
        out: The results folder.
        metric: Orders the rows; is plotted and compared.

    Raises:
        ConfigError: For a metric that is not kept by document.
    """

    def __init__(
        self, rows: Sequence[Row], manifest: Mapping[str, Any], *, out: Path, metric: str
    ) -> None:
        check_metric(metric)
        self.metric, self.manifest, self.out = metric, manifest, out
        rows, self.changed = _plain_titles(rows)
        done = [row for row in rows if row.is_done]
        self.rows = sorted(done, key=lambda row: -(row.score(metric) or 0.0))
        self.failed = [row for row in rows if not row.is_done]
        self.comparison = self._compare()

    def _compare(self) -> dict[str, BootstrapResult]:
        """Each row minus the best one."""
        if len(self.rows) < 2:
            return {}
        scores = [load_document_scores(self.out / "work" / row.stem)[0] for row in self.rows]
        best = scores[0][self.metric]
        return {
            row.stem: paired_bootstrap(found[self.metric], best)
            for row, found in zip(self.rows[1:], scores[1:], strict=True)
        }

    # --- tables -------------------------------------------------------------------------------

    def grids(self) -> list[Grid]:
        """All tables of the page."""
        if not self.rows:
            return []
        comparison = [self._comparison_grid()] if self.comparison else []
        return [
            _quality_grid(self.rows),
            cost_grid(self.rows),
            *comparison,
            *_fresh_grids(self.rows),
            *_band_grids(self.rows),
            self._settings_grid(),
        ]

    def short_grids(self) -> list[Grid]:
        """What fits a terminal."""
        return [_quality_grid(self.rows), cost_grid(self.rows)] if self.rows else []

    def _comparison_grid(self) -> Grid:
        best = self.rows[0].contender.title
        columns = [Column(name, "points") for name in ("difference", "from", "to")]
        grid = Grid(
            f"{self.metric} against {best}",
            [Column("method", "text"), *columns, Column("p", "number")],
            note="In points, with 95% intervals by paired bootstrap over the test texts.",
        )
        for row in self.rows[1:]:
            found = self.comparison[row.stem]
            values = (found.difference, found.low, found.high, found.p_value)
            grid.rows.append((row.contender.title, *values))
        return grid

    def _settings_grid(self) -> Grid:
        names = ("method", "library", "settings", "seed", "measured")
        grid = Grid(
            "Settings",
            [Column(name, "text") for name in names],
            note="Settings that are not the library's defaults.",
        )
        for row in self.rows:
            who = row.contender
            cells = (who.title, who.library, _written_settings(row), str(who.seed), row.finished)
            grid.rows.append(cells)
        return grid

    # --- words --------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """On what, where, and what is missing."""
        splits = [
            f"{found['texts']:,} {split} texts ({found['source']})"
            for split, found in self.manifest["splits"].items()
        ]
        lines = [f"Data: {', '.join(splits)}. Numbers are on test; weights are chosen on dev."]
        if self.changed:
            lines.append(f"All recipes with {', '.join(self.changed)}.")
        machines = dict.fromkeys(_written_machine(row.machine) for row in self.rows)
        if machines:
            lines.append(f"Measured on {'; '.join(machines)}.")
        lines += [f"{row.contender.title} failed: {row.error}." for row in self.failed]
        return lines

    # --- files --------------------------------------------------------------------------------

    def write(self) -> list[Path]:
        """Write results.json, results.md and results.html into the results folder."""
        return [
            save_json(self.out / "results.json", self.to_dict()),
            write_text(self.out / "results.md", self.markdown()),
            write_text(self.out / "results.html", self.html()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "benchmark": dict(self.manifest),
            "metric": self.metric,
            "rows": [asdict(row) for row in [*self.rows, *self.failed]],
            "against_best": {stem: found.to_dict() for stem, found in self.comparison.items()},
        }

    def markdown(self) -> str:
        """The page as Markdown."""
        notes = "\n".join(f"- {line}" for line in self.notes())
        tables = "\n".join(grid.markdown() for grid in self.grids())
        return f"# {HEADING}\n\n{notes}\n\n{tables}"

    def html(self) -> str:
        """The page as one HTML file."""
        template = resources.files("glocal.lab.benchmark").joinpath("benchmark_page.html")
        notes = "\n".join(f"<p>{escape(line)}</p>" for line in self.notes())
        tables = "\n".join(grid.html() for grid in self.grids())
        parts = {"heading": HEADING, "notes": notes, "plots": self._plots(), "tables": tables}
        page = template.read_text("utf-8")
        for name, text in parts.items():
            page = page.replace(f"<!-- {name} -->", text)
        return page

    def _plots(self) -> str:
        costs = {
            "train_seconds": ("against training time", "training time (s, log)"),
            "latency_ms": ("against latency", "time for one text (ms, log)"),
        }
        figures = []
        for key, (words, x_label) in costs.items():
            title = f"{self.metric} {words}"
            points = [
                Point(
                    row.contender.title,
                    max(float(row.cost[key]), 1e-3),
                    100 * (row.score(self.metric) or 0.0),
                    row.contender.kind,
                )
                for row in self.rows
            ]
            drawing = scatter(points, x_label=x_label, y_label=self.metric, title=title)
            if drawing:
                caption = f"<figcaption>{escape(title)}</figcaption>"
                figures.append(f"<figure>{caption}{drawing}</figure>")
        return "\n".join(figures)


def _megabytes(value: float | None) -> float | None:
    return None if value is None else value / _MB


def _written_machine(machine: Mapping[str, Any]) -> str:
    gpu = f", {machine['gpu']}" if machine.get("gpu") else ""
    threads = machine["threads"]
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"{count} of {machine['processor']}{gpu} ({machine['system']})"


def _written_settings(row: Row) -> str:
    who = row.contender
    if who.kind == RECIPE:
        return ", ".join([f"recipe {who.source}", *who.overrides])
    return ", ".join(f"{key}={value}" for key, value in who.settings.items()) or "–"
