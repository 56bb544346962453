"""Ablations: the variants of a table, measured (`glocal ablate`).

The main table has a row for each variant, or for each of its experts and their combination; two
more have macro scores by label frequency (ME-XML Table 3). Where weights learned on dev combine the
experts, another table has the mean of their probabilities, which the papers report. Published
numbers have a table of their own with their source, since they were measured on other data.

Trained from several seeds, every variant shows the mean of its finished seeds, and one more table
their standard deviation; the CSV and JSON files have every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import stdev
from typing import Any

from glocal.lab.analysis import (
    GROUPS,
    MACRO,
    K,
    Macro,
    StudyAnalysis,
    band_names,
    band_table,
    macro_of,
    percent,
)
from glocal.lab.experiment.jobs import Result
from glocal.lab.plots import Panel, dot_plot
from glocal.lab.seeds import merge_runs, seeded_name
from glocal.predict.evaluation import COMBINED, MEAN
from glocal.table import Column, Table, columns

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
_PLOTTED = _PUBLISHED = ("P@1", "P@3", "P@5")


@dataclass(eq=False)
class Ablation(StudyAnalysis):
    """The results of a table's variants.

    Args:
        seeds: The seeds every variant was trained from, if several were asked for.
    """

    seeds: Sequence[int] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        finished = {run.name: run for run in self.runs if run.is_done}
        self.finished = {
            v.name: [finished[name] for name in self._run_names(v.name) if name in finished]
            for v in self.table.variants
        }
        self.done = {
            v.name: merge_runs(found, v.name, v.title) if self.seeds else found[0]
            for v in self.table.variants
            if (found := self.finished[v.name])
        }
        if self.seeds:
            self.stem = f"{self.table.name}-seeds"
            self.note += f" Means over seeds {', '.join(map(str, self.seeds))}."

    def _run_names(self, variant: str) -> list[str]:
        return [seeded_name(variant, seed) for seed in self.seeds] if self.seeds else [variant]

    # --- tables -------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        """Return the tables of the page."""
        more = (self._spread(), self._bands(), self._means(), self._published())
        return [self.main(), *(table for tables in more for table in tables)]

    def short_tables(self) -> list[Table]:
        """Return scores, and macro F by band."""
        return [self.main(), *self._spread(), self._band_summary()]

    def main(self) -> Table:
        """Return the scores; a variant that failed or was not run has an empty row."""
        rows = [
            (v.title, part, [*_scores(result, part), result and result.cost["train_seconds"]])
            for v in self.table.variants
            for result in [self.done.get(v.name)]
            for part in self._parts(result)
        ]
        title, note = self.table.title, " ".join([self.note, *self._missing()])
        return self._table(title, SHOWN, rows, last=columns("number", "train s"), note=note)

    def _table(
        self,
        title: str,
        metrics: Sequence[str],
        rows: Iterable[tuple[str, str, list[Any]]],
        *,
        last: Sequence[Column] = (),
        note: str = "",
    ) -> Table:
        """Make a table from titles, parts and cells; parts are shown if the table asks for them."""
        names = ("variant", "part") if self.table.parts else ("variant",)
        heads = [*columns("text", *names), *columns("share", *metrics), *last]
        filled = [((title, part)[: len(names)] + tuple(cells)) for title, part, cells in rows]
        return Table(f"{title} ({self.splits.split})", heads, filled, note)

    def _parts(self, result: Result | None) -> list[str]:
        return [*(result.parts if result and self.table.parts else []), COMBINED]

    def _missing(self) -> Iterator[str]:
        ended = {run.name for run in self.runs if run.is_done or run.has_failed}
        expected = [name for v in self.table.variants for name in self._run_names(v.name)]
        absent = [name for name in expected if name not in ended]
        yield from (f"{run.name} failed: {run.error}." for run in self.runs if run.has_failed)
        if absent:
            yield f"Not run yet: {', '.join(absent)}."

    def _spread(self) -> Iterator[Table]:
        several = [v for v in self.table.variants if len(self.finished[v.name]) > 1]
        if several:
            rows = [
                (v.title, part, [*_scores(spread, part), len(runs)])
                for v in several
                for runs in [self.finished[v.name]]
                for spread in [merge_runs(runs, v.name, v.title, stdev)]
                for part in self._parts(spread)
            ]
            title = "Standard deviation over the seeds"
            yield self._table(title, SHOWN, rows, last=columns("count", "seeds"))

    def _bands(self) -> Iterator[Table]:
        for group, words in GROUPS.items():
            title = f"Macro P, R and F at {K} by training frequency, {words}"
            yield band_table(
                f"{title} ({self.splits.split})", "variant", self._macros(), groups=[group]
            )

    def _band_summary(self) -> Table:
        title = f"Macro F at {K} by training frequency: all labels of a band; those with gold"
        return band_table(title, "variant", self._macros(), groups=list(GROUPS), letters="F")

    def _macros(self) -> list[tuple[str, Macro]]:
        return [(result.title, macro_of(result)) for result in self.done.values()]

    def _has_means(self) -> bool:
        """Whether some variant weighs its experts, so that their mean is something else."""
        weighed = [r for r in self.done.values() if r.method.settings.get("combine") != "mean"]
        return any(MEAN in result.parts for result in weighed)

    def _means(self) -> Iterator[Table]:
        """Return scores of the mean, unless the main table has them already."""
        if not self.table.parts and self._has_means():
            parts = [(r, MEAN if MEAN in r.parts else COMBINED) for r in self.done.values()]
            rows = [(result.title, part, _scores(result, part)) for result, part in parts]
            yield self._table("By the mean of the experts' probabilities", SHOWN, rows)

    def _published(self) -> Iterator[Table]:
        if self.table.published:
            rows = [
                (v.title, part, [value / 100 for value in values])
                for v in self.table.variants
                for part, values in v.published.items()
            ]
            table = self._table("", _PUBLISHED, rows)
            yield replace(table, title=f"As published: {self.table.published}")

    # --- files --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        known = {run.name: run for run in self.runs} | self.done
        document: dict[str, Any] = {
            "table": self.table.name,
            "title": self.table.title,
            "split": self.splits.split,
            "note": self.note,
            "published": self.table.published,
            "variants": [
                {**known[variant.name].to_dict(), "published": dict(variant.published)}
                for variant in self.table.variants
                if variant.name in known
            ],
        }
        if self.seeds:
            document |= {"seeds": list(self.seeds), "runs": [run.to_dict() for run in self.runs]}
        return document

    def csv_table(self) -> Table:
        """Return every metric of each run and part."""
        bands = band_names(macro_of(run) for run in self.runs if run.is_done)
        records: list[dict[str, Any]] = []
        for run in self.runs:
            head = {
                "variant": run.name,
                "title": run.title,
                "status": run.status,
                "split": run.split,
            }
            if not run.is_done:
                records.append(head)
                continue
            for part in [*run.parts, COMBINED]:
                macro = {
                    f"{band} macro-{letter}@{K}{suffix}": macro_of(run, part)[band][group][score]
                    for group, suffix in {"all_labels": "", "with_gold": " (with gold)"}.items()
                    for band in bands
                    for letter, score in MACRO.items()
                }
                scores = {**run.report["scores"][part], **macro}
                seconds = {"train_seconds": run.cost["train_seconds"]}
                records.append({**head, "part": part, **scores, **seconds})
        return Table.from_records(self.heading, records)

    def plot(self, stem: Path) -> list[Path]:
        """Draw a dot for each part of each variant."""
        done = list(self.done.values())
        if not done:
            return []
        experts = list(dict.fromkeys(part for result in done for part in result.parts))
        parts = experts if self.table.parts else [MEAN] if self._has_means() else []
        panels = [
            Panel(
                f"{metric} ({self.splits.split})",
                {p: [percent(r.score(metric, p)) for r in done] for p in [*parts, COMBINED]},
            )
            for metric in _PLOTTED
        ]
        rows = [result.title for result in done]
        return dot_plot(stem, panels, rows=rows, title=self.table.title, note=self.note)


def _scores(result: Result | None, part: str) -> list[float | None]:
    return [result.score(name, part) if result else None for name in SHOWN]
