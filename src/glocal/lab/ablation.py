"""Ablations: the variants of a table, measured (`glocal ablate`).

The main table has a row for each variant, or for each of its experts and their combination; two
more have macro scores by label frequency (ME-XML Table 3). Where weights learned on dev combine the
experts, another table has the mean of their probabilities, which the papers report. Published
numbers have a table of their own with their source, since they were measured on other data.

Trained from several seeds, every variant shows the mean of its finished seeds, and one more table
their standard deviation; the CSV and JSON files have every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import Any

from glocal.config import Recipe
from glocal.lab.analysis import (
    GROUPS,
    MACRO,
    Analysis,
    K,
    Macro,
    band_names,
    band_table,
    macro_of,
    percent,
    score_table,
    shared_settings,
)
from glocal.lab.experiment.jobs import Result, Splits
from glocal.lab.plots import Panel, dot_plot
from glocal.lab.seeds import merge_runs, seeded_name
from glocal.lab.variant_tables import VariantTable
from glocal.predict.evaluation import COMBINED, MEAN
from glocal.table import Table, columns

__all__ = ["Ablation"]

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
_PLOTTED = _PUBLISHED = ("P@1", "P@3", "P@5")


class Ablation(Analysis):
    """The results of a table's variants.

    Args:
        table: The variants.
        recipes: Recipe of each run.
        splits: The texts.
        runs: The results there are.
        seeds: The seeds every variant was trained from, if several were asked for.
    """

    def __init__(
        self,
        table: VariantTable,
        recipes: Mapping[str, Recipe],
        splits: Splits,
        runs: Sequence[Result],
        *,
        seeds: Sequence[int] = (),
    ) -> None:
        self.table, self.splits, self.runs, self.seeds = table, splits, runs, seeds
        self.heading = table.title
        self.stem = f"{table.name}-seeds" if seeds else table.name
        finished = {run.name: run for run in runs if run.is_done}
        self.finished = {
            v.name: [finished[name] for name in self._run_names(v.name) if name in finished]
            for v in table.variants
        }
        self.done = {
            v.name: merge_runs(found, v.name, v.title) if seeds else found[0]
            for v in table.variants
            if (found := self.finished[v.name])
        }
        self.note = f"{splits.describe()} {shared_settings(list(recipes.values()))}"
        if seeds:
            self.note += f" Means over seeds {', '.join(map(str, seeds))}."

    def _run_names(self, variant: str) -> list[str]:
        return [seeded_name(variant, seed) for seed in self.seeds] if self.seeds else [variant]

    # --- tables -------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        """Return the tables of the page."""
        bands = [self._bands(group) for group in GROUPS]
        return [self.main(), *self._spread(), *bands, *self._means(), *self._published()]

    def short_tables(self) -> list[Table]:
        """Return scores, and macro F by band."""
        return [self.main(), *self._spread(), self._band_summary()]

    def main(self) -> Table:
        """Return the scores; a variant that failed or was not run has an empty row."""
        table = Table(
            f"{self.table.title} ({self.splits.split})",
            [*self._columns(SHOWN), *columns("number", "train s")],
            note=" ".join([self.note, *self._missing()]),
        )
        for variant in self.table.variants:
            result = self.done.get(variant.name)
            for part in self._parts(result):
                scores = [result.score(name, part) if result else None for name in SHOWN]
                seconds = result.cost["train_seconds"] if result else None
                table.rows.append((variant.title, *self._label(part), *scores, seconds))
        return table

    def _columns(self, metrics: Sequence[str]) -> list[Any]:
        return [*columns("text", "variant", *self._label("part")), *columns("share", *metrics)]

    def _label(self, part: str) -> list[str]:
        """Return the cell that names a part, in tables that have a row for each."""
        return [part] if self.table.parts else []

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
        if not several:
            return
        title = f"Standard deviation over the seeds ({self.splits.split})"
        table = Table(title, [*self._columns(SHOWN), *columns("count", "seeds")])
        for variant in several:
            runs = self.finished[variant.name]
            spread = merge_runs(runs, variant.name, variant.title, stdev)
            for part in self._parts(spread):
                scores = [spread.score(name, part) for name in SHOWN]
                table.rows.append((variant.title, *self._label(part), *scores, len(runs)))
        yield table

    def _macros(self) -> list[tuple[str, Macro]]:
        return [(result.title, macro_of(result)) for result in self.done.values()]

    def _bands(self, group: str) -> Table:
        title = f"Macro P, R and F at {K} by training frequency, {GROUPS[group]}"
        return band_table(f"{title} ({self.splits.split})", "variant", self._macros(), group)

    def _band_summary(self) -> Table:
        """Return macro F of both groups in one table."""
        title = f"Macro F at {K} by training frequency: all labels of a band; those with gold"
        first, second = (
            band_table(title, "variant", self._macros(), group, letters="F") for group in GROUPS
        )
        rows = [(*a, *b[1:]) for a, b in zip(first.rows, second.rows, strict=True)]
        return Table(title, [*first.columns, *second.columns[1:]], rows)

    def _has_means(self) -> bool:
        """Whether some variant weighs its experts, so that their mean is something else."""
        weighed = [r for r in self.done.values() if r.method.settings.get("combine") != "mean"]
        return any(MEAN in result.parts for result in weighed)

    def _means(self) -> Iterator[Table]:
        """Return scores of the mean, unless the main table has them already."""
        if not self.table.parts and self._has_means():
            title = f"By the mean of the experts' probabilities ({self.splits.split})"
            rows = [(r, MEAN if MEAN in r.parts else COMBINED) for r in self.done.values()]
            yield score_table(title, "variant", rows, SHOWN)

    def _published(self) -> Iterator[Table]:
        if not self.table.published:
            return
        table = Table(f"As published: {self.table.published}", self._columns(_PUBLISHED))
        for variant in self.table.variants:
            for part, values in variant.published.items():
                scores = (value / 100 for value in values)
                table.rows.append((variant.title, *self._label(part), *scores))
        yield table

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
                "status": run.state,
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
