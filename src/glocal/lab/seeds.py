"""A table of variants trained from several seeds: means, and how far the seeds lie apart.

Every variant becomes one for each seed, so a study resumes and fails seed by seed; what is shown is
the mean of a variant's finished seeds and their standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from glocal.config import Recipe
from glocal.lab.ablation import SHOWN, Ablation
from glocal.lab.grid import Column, Grid
from glocal.lab.study import DONE, FAILED, Outcome, StudyData
from glocal.lab.variant_tables import Variant, VariantTable, seeded_name

__all__ = ["SeededAblation"]


class SeededAblation(Ablation):
    """Means over seeds as tables, files and a plot; the CSV and JSON files have every run.

    Args:
        table: What was asked, without seeds.
        recipes: Of each run.
        data: The texts.
        runs: What is known of each run.
        seeds: The seeds asked for.
    """

    def __init__(
        self,
        table: VariantTable,
        recipes: Mapping[str, Recipe],
        data: StudyData,
        runs: Sequence[Outcome],
        seeds: Sequence[int],
    ) -> None:
        self.runs, self.seeds = runs, seeds
        means = [
            _together(variant, found, fmean)
            for variant in table.variants
            if (found := self._finished(variant))
        ]
        super().__init__(table, recipes, data, means)
        self.failed = [run for run in runs if run.status == FAILED]
        self.note += f" Means over seeds {', '.join(map(str, seeds))}."

    @property
    def stem(self) -> str:
        """Apart from the files of a single seed."""
        return f"{super().stem}-seeds"

    def grids(self) -> list[Grid]:
        """With the standard deviations after the means."""
        main, *others = super().grids()
        return [main, *self._spread(), *others]

    def short_grids(self) -> list[Grid]:
        """With the standard deviations too."""
        main, *others = super().short_grids()
        return [main, *self._spread(), *others]

    def to_dict(self) -> dict[str, Any]:
        """With every run."""
        return {
            **super().to_dict(),
            "seeds": list(self.seeds),
            "runs": list(map(asdict, self.runs)),
        }

    def _finished(self, variant: Variant) -> list[Outcome]:
        names = {seeded_name(variant.name, seed) for seed in self.seeds}
        return [run for run in self.runs if run.name in names and run.status == DONE]

    def _missing(self) -> Iterator[str]:
        known = {run.name for run in self.runs if run.status in (DONE, FAILED)}
        absent = [
            name
            for variant in self.table.variants
            for seed in self.seeds
            if (name := seeded_name(variant.name, seed)) not in known
        ]
        yield from self._failures()
        if absent:
            yield f"Not run yet: {', '.join(absent)}."

    def _spread(self) -> Iterator[Grid]:
        several = [v for v in self.table.variants if len(self._finished(v)) > 1]
        if not several:
            return
        grid = Grid(
            f"Standard deviation over the seeds ({self.data.split})",
            [*self._columns(SHOWN), Column("seeds", "count")],
        )
        for variant in several:
            found = self._finished(variant)
            spread = _together(variant, found, stdev)
            for part in self._parts(spread):
                label = [part] if self.table.parts else []
                scores = [spread.score(name, part) for name in SHOWN]
                grid.rows.append((variant.title, *label, *scores, len(found)))
        yield grid

    def _rows(self) -> Sequence[Outcome]:
        return self.runs


def _together(
    variant: Variant, runs: Sequence[Outcome], of: Callable[[Sequence[float]], float]
) -> Outcome:
    """The runs of a variant as one outcome, its scores the mean (or spread) of theirs."""
    report = {key: _leaves([run.report[key] for run in runs], of) for key in ("scores", "macro")}
    seconds = fmean(run.seconds for run in runs)
    return Outcome(variant.name, variant.title, DONE, "", seconds=seconds, report=report)


def _leaves(values: Sequence[Any], of: Callable[[Sequence[float]], float]) -> Any:
    """Mappings as one mapping of what all of them have; what is not a number becomes None."""
    first = values[0]
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in value for value in values)]
        return {key: _leaves([value[key] for value in values], of) for key in shared}
    numbers = [value for value in values if isinstance(value, int | float)]
    return of(numbers) if len(numbers) == len(values) else None
