"""Benchmarks: recipes and baselines on one data set, as tables, Markdown and one HTML file.

    OUT/runs/NAME-KEY/      one row: result, log, predictions, and a recipe's model
    OUT/results.json, results.md, results.html

The HTML file needs no other file: style and plots are in it, light or dark as the reader's system
is. All three can be written again from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from glocal.data.atomic import write_json, write_text
from glocal.errors import ConfigError, DataError, did_you_mean
from glocal.lab.analysis import GROUPS, K, band_table, macro_of
from glocal.lab.experiment.document_scores import load_document_scores
from glocal.lab.experiment.jobs import Conditions, Job, Result, Splits
from glocal.lab.experiment.methods import RECIPE, Method
from glocal.lab.experiment.runner import Runner, results_in
from glocal.lab.plots import Point, scatter
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
from glocal.predict.report_tables import comparison_table
from glocal.table import Cell, Table, columns

HEADING = "Benchmark"
_SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "RP@5", "PSP@1", "PSP@3", "PSP@5")
_FRESH = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
_METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5", "RP@5")
# Heading, key and unit of each cost.
_COSTS = (
    ("train s", "train_seconds", 1.0),
    ("CPU s", "cpu_seconds", 1.0),
    ("peak MB", "peak_bytes", 1e6),
    ("GPU MB", "gpu_bytes", 1e6),
    ("model MB", "model_bytes", 1e6),
    ("one text ms", "latency_ms", 1.0),
    ("texts/s", "docs_per_second", 1.0),
)


def benchmark_runner(
    methods: Sequence[Method], splits: Splits, conditions: Conditions, *, out: Path
) -> Runner:
    """Make the runner of a benchmark.

    Raises:
        ConfigError: If the folder has rows of other texts, threads or devices.
    """
    jobs = [
        Job.make(method, splits, conditions, out / "runs" / method.name, keyed=True)
        for method in methods
    ]
    runner, data = Runner(jobs, out=out, check_first=False), splits.sources()["hash"]
    for row in results_in(out):
        shared = {
            "other texts or labels": row.data["hash"] == data,
            f"threads = {row.conditions.threads}": row.conditions.threads == conditions.threads,
            f"device = {row.conditions.device}": row.conditions.device == conditions.device,
        }
        if not all(shared.values()):
            other = ", ".join(words for words, same in shared.items() if not same)
            raise ConfigError(
                f"{out} has rows that were measured with {other}; rows of one page must have the "
                "same data and conditions: choose another folder"
            )
    return runner


def check_metric(metric: str) -> None:
    """Check that a metric is kept for every text.

    Raises:
        ConfigError: With the nearest one that is.
    """
    if metric not in _METRICS:
        raise ConfigError(
            f"rows cannot be ordered by '{metric}'{did_you_mean(metric, _METRICS)}; expected one "
            f"of {', '.join(_METRICS)}"
        )


# --- tables ----------------------------------------------------------------------------------


def quality_tables(rows: Sequence[Result]) -> list[Table]:
    """Return the scores on all texts, without near-duplicates, and by label frequency."""

    def scores(title: str, metrics: Sequence[str], *, fresh: bool, note: str = "") -> Table:
        heads = [*columns("text", "method"), *columns("share", *metrics)]
        values = [[row.score(name, deduplicated=fresh) for name in metrics] for row in rows]
        return Table(title, heads, [(r.title, *v) for r, v in zip(rows, values, strict=True)], note)

    tables = [scores("Quality (test)", _SHOWN, fresh=False)]
    removed = max((row.report["documents"]["near_duplicates"] or 0 for row in rows), default=0)
    if removed:
        title, note = "Without near-duplicates of training texts", f"{removed:,} texts are skipped."
        tables.append(scores(title, _FRESH, fresh=True, note=note))
    macros = [(row.title, macro_of(row)) for row in rows]
    for group, words in GROUPS.items():
        title = f"Macro-F1 at {K} by training frequency, {words}"
        bands = band_table(title, "method", macros, groups=[group], letters="F", overall=True)
        tables.append(bands)
    return tables


def cost_table(rows: Sequence[Result]) -> Table:
    """Return seconds, memory, size and speed."""
    has_gpu = any(row.cost.get("gpu_bytes") for row in rows)
    costs = [cost for cost in _COSTS if has_gpu or cost[0] != "GPU MB"]
    texts, batch = (
        max((row.cost[key] for row in rows), default=0) for key in ("latency_texts", "batch_texts")
    )
    return Table(
        "Cost",
        [*columns("text", "method"), *columns("number", *(name for name, _, _ in costs))],
        [(row.title, *(_divided(row.cost[key], unit) for _, key, unit in costs)) for row in rows],
        note="Training is from texts to a model on disk, features or tokens included; peak memory "
        "is of the process, training and prediction; one text is the median of "
        f"{texts} warm texts, texts/s one call with {batch:,}.",
    )


def _divided(value: float | None, unit: float) -> Cell:
    return None if value is None else value / unit


class ResultsPage:
    """The rows of a results folder, best first.

    Args:
        out: The results folder.
        metric: Metric that orders the rows and is plotted and compared.

    Raises:
        ConfigError: If the metric is not kept for every text.
        DataError: If the folder has no rows.
    """

    def __init__(self, out: Path, *, metric: str) -> None:
        check_metric(metric)
        self.metric, self.out = metric, out
        folders = sorted(path.parent for path in out.glob("runs/*/result.json"))
        found = {folder: row for folder in folders if (row := Result.load(folder)) is not None}
        if not found:
            raise DataError("not the results of a benchmark: there are no rows in runs/", path=out)
        self.data = next(iter(found.values())).data
        rows, self.changed = _plain_titles(found)
        done = {folder: row for folder, row in rows.items() if row.is_done}
        ordered = sorted(done, key=lambda folder: -(done[folder].score(metric) or 0.0))
        self.rows = [done[folder] for folder in ordered]
        self.failed = [row for row in rows.values() if row.has_failed]
        self.comparison = self._compare(ordered)

    def _compare(self, folders: Sequence[Path]) -> dict[str, BootstrapResult]:
        """Compare each row with the best one, by folder name."""
        if len(folders) < 2:
            return {}
        best, *others = (load_document_scores(folder)[self.metric] for folder in folders)
        both = zip(folders[1:], others, strict=True)
        return {folder.name: paired_bootstrap(scores, best) for folder, scores in both}

    def tables(self) -> list[Table]:
        """Return all tables of the page."""
        if not self.rows:
            return []
        quality, *others = quality_tables(self.rows)
        tables = [quality, cost_table(self.rows)]
        if self.comparison:
            titles = [row.title for row in self.rows[1:]]
            title = f"{self.metric} against {self.rows[0].title}"
            pairs = zip(titles, self.comparison.values(), strict=True)
            tables.append(comparison_table(pairs, title, head="method"))
        return [*tables, *others, self._settings_table()]

    def short_tables(self) -> list[Table]:
        """Return quality and cost."""
        return self.tables()[:2]

    def _settings_table(self) -> Table:
        return Table(
            "Settings",
            columns("text", "method", "library", "settings", "seed", "measured"),
            [
                (
                    row.title,
                    row.method.library,
                    _settings(row.method),
                    str(row.method.seed),
                    row.finished,
                )
                for row in self.rows
            ],
            note="Settings that are not the library's defaults.",
        )

    def notes(self) -> list[str]:
        """Say what was measured, where, and what failed."""
        splits = [
            f"{found['texts']:,} {split} texts ({found['source']})"
            for split, found in self.data["splits"].items()
        ]
        lines = [f"Data: {', '.join(splits)}. Numbers are on test; weights are chosen on dev."]
        if self.changed:
            lines.append(f"All recipes with {', '.join(self.changed)}.")
        machines = dict.fromkeys(map(_machine, self.rows))
        if machines:
            lines.append(f"Measured on {'; '.join(machines)}.")
        return lines + [f"{row.title} failed: {row.error}." for row in self.failed]

    def write(self) -> list[Path]:
        """Write results.json, results.md and results.html; return their paths."""
        return [
            write_json(self.out / "results.json", self.to_dict()),
            write_text(self.out / "results.md", self.markdown()),
            write_text(self.out / "results.html", self.html()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "data": dict(self.data),
            "metric": self.metric,
            "rows": [row.to_dict() for row in [*self.rows, *self.failed]],
            "against_best": {name: found.to_dict() for name, found in self.comparison.items()},
        }

    def markdown(self) -> str:
        """Return the page as Markdown."""
        notes = "\n".join(f"- {line}" for line in self.notes())
        tables = "\n".join(table.markdown() for table in self.tables())
        return f"# {HEADING}\n\n{notes}\n\n{tables}"

    def html(self) -> str:
        """Return the page as one HTML file."""
        parts = {
            "heading": HEADING,
            "notes": "\n".join(f"<p>{escape(line)}</p>" for line in self.notes()),
            "plots": "\n".join(self._plots()),
            "tables": "\n".join(table.html() for table in self.tables()),
        }
        page = resources.files("glocal.lab").joinpath("benchmark_page.html").read_text("utf-8")
        for name, text in parts.items():
            page = page.replace(f"<!-- {name} -->", text)
        return page

    def _plots(self) -> list[str]:
        costs = {
            "train_seconds": ("against training time", "training time (s, log)"),
            "latency_ms": ("against latency", "time for one text (ms, log)"),
        }
        figures = []
        for key, (words, x_label) in costs.items():
            title = f"{self.metric} {words}"
            points = [
                Point(
                    row.title,
                    max(float(row.cost[key]), 1e-3),
                    100 * (row.score(self.metric) or 0.0),
                    row.method.kind,
                )
                for row in self.rows
            ]
            drawing = scatter(points, x_label=x_label, y_label=self.metric, title=title)
            if drawing:
                caption = f"<figcaption>{escape(title)}</figcaption>"
                figures.append(f"<figure>{caption}{drawing}</figure>")
        return figures


def _plain_titles(rows: Mapping[Path, Result]) -> tuple[dict[Path, Result], Sequence[str]]:
    """Take settings that all recipes share out of their titles, and add versions where needed."""
    recipes = [row for row in rows.values() if row.method.kind == RECIPE]
    changed = {tuple(row.method.overrides) for row in recipes}
    shared = changed.pop() if len(changed) == 1 else ()
    titles = {
        folder: row.name if shared and row.method.kind == RECIPE else row.title
        for folder, row in rows.items()
    }
    again = [title for title in titles.values() if list(titles.values()).count(title) > 1]
    plain = {}
    for folder, row in rows.items():
        title = titles[folder]
        title = f"{title} ({row.method.library})" if title in again else title
        plain[folder] = replace(row, method=replace(row.method, title=title))
    return plain, shared


def _machine(row: Result) -> str:
    gpu = f", {row.machine['gpu']}" if row.machine["gpu"] else ""
    threads = row.conditions.threads
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"{count} of {row.machine['processor']}{gpu} ({row.machine['system']})"


def _settings(method: Method) -> str:
    if method.kind == RECIPE:
        return ", ".join([f"recipe {method.source}", *method.overrides])
    return ", ".join(f"{key}={value}" for key, value in method.settings.items()) or "–"
