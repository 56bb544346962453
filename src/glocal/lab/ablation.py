"""A table of variants, measured: `glocal ablate`.

The main table has a row for each variant (or for each of its experts and their combination), two
more have macro scores by label frequency (ME-XML Table 3). Where weights learnt on dev combine the
experts, one more has the mean of their probabilities, which the papers report; published numbers
stand apart with their source, as they are of other data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glocal.config import Recipe
from glocal.lab.grid import Cell, Column, Grid
from glocal.lab.output import budget, write_analysis
from glocal.lab.plots import Panel, dot_plot
from glocal.lab.study import DONE, FAILED, Outcome, StudyData
from glocal.lab.variant_tables import VariantTable
from glocal.predict.evaluation import COMBINED, MEAN

__all__ = ["SHOWN", "Ablation"]

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
_PLOTTED = _PUBLISHED = ("P@1", "P@3", "P@5")
_K = "5"  # of macro scores
_MACRO = {"P": "precision", "R": "recall", "F": "f1"}
_GROUPS = {"all_labels": "over all labels of a band", "with_gold": "over labels with gold"}


class Ablation:
    """The outcomes of a table's variants as tables, files and a plot.

    Args:
        table: What was asked.
        recipes: Of each variant.
        data: The texts.
        outcomes: What is known, in the table's order.
    """

    def __init__(
        self,
        table: VariantTable,
        recipes: Mapping[str, Recipe],
        data: StudyData,
        outcomes: Sequence[Outcome],
    ) -> None:
        self.table, self.data, self.outcomes = table, data, outcomes
        self.done = [outcome for outcome in outcomes if outcome.status == DONE]
        self.failed = [outcome for outcome in outcomes if outcome.status == FAILED]
        self.note = f"{data.describe()} {budget(list(recipes.values()))}"

    # --- tables -------------------------------------------------------------------------------

    @property
    def stem(self) -> str:
        """What its files are called."""
        return self.table.name

    def grids(self) -> list[Grid]:
        """Everything there is to show, for a page."""
        bands = (self.bands(group) for group in _GROUPS)
        return [self.main(), *bands, *self._means(), *self._published()]

    def short_grids(self) -> list[Grid]:
        """What fits a terminal."""
        return [self.main(), self._band_summary()]

    def main(self) -> Grid:
        """The scores; what failed or was not run is a row without them."""
        grid = Grid(
            f"{self.table.title} ({self.data.split})",
            [*self._columns(SHOWN), Column("train s", "number")],
            note=" ".join([self.note, *self._missing()]),
        )
        found = {outcome.name: outcome for outcome in self.outcomes}
        for variant in self.table.variants:
            outcome = found.get(variant.name)
            for part in self._parts(outcome):
                scores = [outcome.score(n, part) if outcome else None for n in SHOWN]
                seconds = outcome.seconds if outcome and outcome.status == DONE else None
                label = [part] if self.table.parts else []
                grid.rows.append((variant.title, *label, *scores, seconds))
        return grid

    def _columns(self, metrics: Sequence[str]) -> list[Column]:
        parts = [Column("part", "text")] if self.table.parts else []
        return [Column("variant", "text"), *parts, *map(Column, metrics)]

    def _parts(self, outcome: Outcome | None) -> list[str]:
        experts = outcome.parts if outcome is not None and self.table.parts else []
        return [*experts, COMBINED]

    def _missing(self) -> Iterator[str]:
        known = {outcome.name for outcome in self.done + self.failed}
        absent = [v.name for v in self.table.variants if v.name not in known]
        yield from self._failures()
        if absent:
            yield f"Not run yet: {', '.join(absent)}."

    def _failures(self) -> Iterator[str]:
        for outcome in self.failed:
            yield f"{outcome.name} failed: {outcome.error}."

    def bands(self, group: str) -> Grid:
        """Macro P, R and F at 5 of every variant's combination by label frequency."""
        names = self._band_names()
        grid = Grid(
            f"Macro P, R and F at {_K} by training frequency, {_GROUPS[group]} ({self.data.split})",
            [
                Column("variant", "text"),
                *(Column(f"{band} {letter}") for band in names for letter in _MACRO),
            ],
        )
        for outcome in self.done:
            grid.rows.append((outcome.title, *self._band_values(outcome, COMBINED, group)))
        return grid

    def _band_summary(self) -> Grid:
        names = self._band_names()
        grid = Grid(
            f"Macro F at {_K} by training frequency: all labels of a band; those with gold",
            [Column("variant", "text"), *(Column(name) for _ in _GROUPS for name in names)],
        )
        letter = list(_MACRO).index("F")
        for outcome in self.done:
            values = [
                value
                for group in _GROUPS
                for value in self._band_values(outcome, COMBINED, group)[letter :: len(_MACRO)]
            ]
            grid.rows.append((outcome.title, *values))
        return grid

    def _band_names(self) -> list[str]:
        """Bands of the training frequency; what no training text has is in none."""
        macro = self.done[0].report["macro"][COMBINED][_K] if self.done else {}
        return [band for band in macro if band not in ("overall", "unseen")]

    def _band_values(self, outcome: Outcome, part: str, group: str) -> list[Cell]:
        macro = outcome.report["macro"][part][_K]
        return [macro[band][group][key] for band in self._band_names() for key in _MACRO.values()]

    def _has_means(self) -> bool:
        """Whether some variant's experts are weighed, so that their mean is something else."""
        weighed = [outcome for outcome in self.done if outcome.recipe.get("combine") != "mean"]
        return any(MEAN in outcome.parts for outcome in weighed)

    def _means(self) -> Iterator[Grid]:
        """By the mean of probabilities, unless that is a row of the main table or the same."""
        if self.table.parts or not self._has_means():
            return
        title = f"By the mean of the experts' probabilities ({self.data.split})"
        grid = Grid(title, self._columns(SHOWN))
        for outcome in self.done:
            part = MEAN if MEAN in outcome.parts else COMBINED  # or its own mean
            grid.rows.append((outcome.title, *(outcome.score(name, part) for name in SHOWN)))
        yield grid

    def _published(self) -> Iterator[Grid]:
        if not self.table.published:
            return
        grid = Grid(f"As published: {self.table.published}", self._columns(_PUBLISHED))
        for variant in self.table.variants:
            for part, values in variant.published.items():
                label = [part] if self.table.parts else []
                grid.rows.append((variant.title, *label, *(v / 100 for v in values)))
        yield grid

    # --- files --------------------------------------------------------------------------------

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write Markdown, CSV, JSON and plots into a folder; gives their paths."""
        stem = out / self.stem
        paths = write_analysis(
            stem,
            self.grids(),
            table=self._csv(),
            document=self.to_dict(),
            heading=self.table.title,
        )
        if plots and self.done:
            paths += self._plot(stem)
        return paths

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "table": self.table.name,
            "title": self.table.title,
            "split": self.data.split,
            "note": self.note,
            "published": self.table.published,
            "variants": [
                {**asdict(outcome), "published": dict(variant.published)}
                for variant in self.table.variants
                for outcome in self.outcomes
                if outcome.name == variant.name
            ],
        }

    def _csv(self) -> Grid:
        """One row for each variant and part, with every metric there is."""
        metrics = list(self.done[0].report["scores"][COMBINED]) if self.done else []
        macro = [
            f"{band} macro-{letter}@{_K}{' (with gold)' if group == 'with_gold' else ''}"
            for group in _GROUPS
            for band in self._band_names()
            for letter in _MACRO
        ]
        names = ["variant", "title", "status", "split", "part", *metrics, *macro, "train_seconds"]
        grid = Grid(self.table.title, [Column(name) for name in names])
        for outcome in self._rows():
            head = (outcome.name, outcome.title, outcome.status, outcome.split)
            if outcome.status != DONE:
                grid.rows.append((*head, *[None] * (len(names) - len(head))))
                continue
            for part in [*outcome.parts, COMBINED]:
                scores = [outcome.score(name, part) for name in metrics]
                bands = [v for g in _GROUPS for v in self._band_values(outcome, part, g)]
                grid.rows.append((*head, part, *scores, *bands, outcome.seconds))
        return grid

    def _rows(self) -> Sequence[Outcome]:
        """What has rows in the CSV file."""
        return self.outcomes

    def _plot(self, stem: Path) -> list[Path]:
        experts = dict.fromkeys(part for outcome in self.done for part in outcome.parts)
        beside = list(experts) if self.table.parts else [MEAN] if self._has_means() else []
        panels = [
            Panel(
                f"{metric} ({self.data.split})",
                {
                    part: [_percent(o.score(metric, part)) for o in self.done]
                    for part in [*beside, COMBINED]
                },
            )
            for metric in _PLOTTED
        ]
        rows = [outcome.title for outcome in self.done]
        return dot_plot(stem, panels, rows=rows, title=self.table.title, note=self.note)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
