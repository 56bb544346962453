"""Which layer an expert should read: sweeps over all layers of the encoder.

- the local expert of GlocalXML on layers 0 … N (its Figures 2 to 4): P@5 of the global expert, the
  local one and their combination, how much the two differ, and the relative gain of the
  combination over the global expert;
- the second expert of ME-XML as `D-n` and as `A-n` on layers 0 … N (its Figure 2), against P@5 and
  the KL divergence on gold labels.

A sweep is a study of one variant for each layer, so it resumes like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.config import Recipe, load_recipe
from glocal.errors import ConfigError
from glocal.lab.grid import Column, Grid
from glocal.lab.output import budget, write_analysis
from glocal.lab.plots import Panel, line_plot
from glocal.lab.study import DONE, FAILED, Outcome, StudyData, encoder_layers
from glocal.lab.variant_tables import Variant, VariantTable
from glocal.predict.evaluation import COMBINED, MEAN

__all__ = ["LayerPoint", "LayerSweep", "layer_table", "on_layers"]

GLOBAL = "D-last"
_METRIC = "P@5"
_ATTENTION, _DOCUMENT = "A", "D"


@dataclass(frozen=True)
class LayerPoint:
    """One layer's result; shares are fractions.

    Attributes:
        expert: The second expert, such as `A-1`.
        layer: Its layer.
        first: P@5 of the expert on the last layer's document vector.
        second: P@5 of the second expert.
        combined: P@5 of both.
        mean: P@5 of the mean of their probabilities; None in results from before it was measured.
        gain: Relative gain of the combination over the first expert; None where that scores 0.
        jsd: Jensen-Shannon divergence of their label distributions.
        bernoulli_jsd: Mean over labels of the Bernoulli one.
        gold_kl: KL divergence on gold labels.
    """

    expert: str
    layer: int
    first: float
    second: float
    combined: float
    mean: float | None
    gain: float | None
    jsd: float
    bernoulli_jsd: float
    gold_kl: float


def layer_table(
    *, second_expert: bool = False, recipe: str | None = None, overrides: Sequence[str] = ()
) -> VariantTable:
    """The variants of a sweep over the layers of a recipe's encoder.

    Args:
        second_expert: Sweep `D-n` and `A-n` with ME-XML's losses, instead of the local expert.
        recipe: Another recipe than `glocalxml` or `me-xml`.
        overrides: `section.key=value`; they decide which encoder it is.
    """
    recipe = recipe or ("me-xml" if second_expert else "glocalxml")
    last = encoder_layers(load_recipe(recipe, overrides))
    kinds = (_DOCUMENT, _ATTENTION) if second_expert else (_ATTENTION,)
    variants = tuple(
        Variant(f"{kind}-{n}", f"{GLOBAL} + {kind}-{n}", {"experts": [GLOBAL, f"{kind}-{n}"]})
        for kind in kinds
        for n in range(last + 1)
    )
    title = "Second expert by layer" if second_expert else "Local expert by layer"
    # An expert measured by itself must have been trained on every label and score every label.
    settings = {"candidates.mode": "full"}
    name = "second-expert" if second_expert else "layers"
    return VariantTable(name, title, recipe, variants, settings=settings)


def on_layers(table: VariantTable, layers: Sequence[int]) -> list[str]:
    """Names of a sweep's variants on these layers.

    Raises:
        ConfigError: When the encoder does not have one of them.
    """
    last = max(_layer(variant.name) for variant in table.variants)
    unknown = [str(layer) for layer in layers if not 0 <= layer <= last]
    if unknown:
        raise ConfigError(f"layer {', '.join(unknown)}: the encoder has layers 0 to {last}")
    return [variant.name for variant in table.variants if _layer(variant.name) in layers]


def _layer(expert: str) -> int:
    return int(expert.partition("-")[2])


class LayerSweep:
    """The outcomes of a sweep as a table, files and plots.

    Args:
        table: From `layer_table`.
        recipes: Of each variant.
        data: The texts.
        outcomes: What is known.
    """

    def __init__(
        self,
        table: VariantTable,
        recipes: Mapping[str, Recipe],
        data: StudyData,
        outcomes: Sequence[Outcome],
    ) -> None:
        self.table, self.data = table, data
        self.failed = [outcome for outcome in outcomes if outcome.status == FAILED]
        self.points = [layer_point(outcome) for outcome in outcomes if outcome.status == DONE]
        self.note = f"{data.describe()} {budget(list(recipes.values()))}"

    @property
    def compares_kinds(self) -> bool:
        """Whether document experts are swept as well."""
        return any(variant.name.startswith(_DOCUMENT) for variant in self.table.variants)

    def grid(self, *, short: bool = False) -> Grid:
        """A row for each expert and layer; `short` for the terminal."""
        heads = ("global", "local") if not self.compares_kinds else ("first", "second")
        metric = "" if short else f"{_METRIC} "
        shares = [Column(f"{metric}{name}") for name in (*heads, "combined", "mean")]
        numbers = ("JSD", "Bernoulli JSD", "KL on gold")
        grid = Grid(
            f"{self.table.title}: {_METRIC} and divergence ({self.data.split})",
            [
                Column("expert", "text"),
                *shares,
                Column("gain %", "points"),
                *(Column(name, "number") for name in numbers),
            ],
            note=" ".join([self.note, *(f"{o.name} failed: {o.error}." for o in self.failed)]),
        )
        for point in self.points:
            expert, _, *values = asdict(point).values()
            grid.rows.append((expert, *values))
        return grid

    def short_grids(self) -> list[Grid]:
        """What fits a terminal."""
        return [self.grid(short=True)]

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write Markdown, CSV, JSON and plots into a folder; gives their paths."""
        stem, grid = out / self.table.name, self.grid()
        paths = write_analysis(
            stem, [grid], table=grid, document=self.to_dict(), heading=self.table.title
        )
        if plots and self.points:
            paths += self._plot_kinds(stem) if self.compares_kinds else self._plot_local(stem)
        return paths

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "title": self.table.title,
            "split": self.data.split,
            "metric": _METRIC,
            "note": self.note,
            "points": [asdict(point) for point in self.points],
            "failed": {outcome.name: outcome.error for outcome in self.failed},
        }

    def _plot_local(self, stem: Path) -> list[Path]:
        """GlocalXML Figures 2 and 4, and Figure 3."""
        layers = [point.layer for point in self.points]
        scores: dict[str, Sequence[float | None]] = {
            "global": [100 * point.first for point in self.points],
            "local": [100 * point.second for point in self.points],
            "combined": [100 * point.combined for point in self.points],
            **self._mean_line(),
        }
        paths = line_plot(
            stem.with_name(f"{stem.name}-scores"),
            [Panel(f"{_METRIC} ({self.data.split})", scores)],
            x=layers,
            x_label="layer of the local expert",
            title="Global, local and combined by the local expert's layer",
            note=self.note,
        )
        panels = [
            Panel("gain over global, %", {"gain": [p.gain and 100 * p.gain for p in self.points]}),
            Panel("JSD", {"JSD": [p.jsd for p in self.points]}),
            Panel("Bernoulli JSD", {"Bernoulli JSD": [p.bernoulli_jsd for p in self.points]}),
        ]
        return paths + line_plot(
            stem.with_name(f"{stem.name}-divergence"),
            panels,
            x=layers,
            x_label="layer of the local expert",
            title="Relative gain and divergence of the experts",
            note=self.note,
        )

    def _mean_line(self) -> dict[str, list[float | None]]:
        """The line of the plain mean, unless that is what combines the experts."""
        values = [_scaled(point.mean, 100) for point in self.points]
        same = all(point.mean in (None, point.combined) for point in self.points)
        return {} if same else {"mean": values}

    def _plot_kinds(self, stem: Path) -> list[Path]:
        """ME-XML Figure 2."""
        layers = sorted({point.layer for point in self.points})
        panels = [
            Panel(f"{_METRIC} of both ({self.data.split})", self._by_kind("combined", 100, layers)),
            Panel("KL on gold labels", self._by_kind("gold_kl", 1, layers), log=True),
        ]
        if self._mean_line():
            title = f"{_METRIC} of their mean ({self.data.split})"
            panels.insert(1, Panel(title, self._by_kind("mean", 100, layers)))
        return line_plot(
            stem,
            panels,
            x=layers,
            x_label="layer of the second expert",
            title="The second expert as D-n and as A-n, beside D-last",
            note=self.note,
        )

    def _by_kind(
        self, attribute: str, scale: float, layers: Sequence[int]
    ) -> dict[str, list[float | None]]:
        series: dict[str, list[float | None]] = {}
        for kind in (_DOCUMENT, _ATTENTION):
            found = {p.layer: p for p in self.points if p.expert.startswith(kind)}
            series[f"{kind}-n"] = [
                _scaled(getattr(found[layer], attribute), scale) if layer in found else None
                for layer in layers
            ]
        return series


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else scale * value


def layer_point(outcome: Outcome) -> LayerPoint:
    """What a sweep's plots show of one variant."""
    expert = outcome.name
    first, second, combined = (
        outcome.score(_METRIC, part) or 0.0 for part in (GLOBAL, expert, COMBINED)
    )
    divergence = outcome.divergence
    return LayerPoint(
        expert,
        _layer(expert),
        first,
        second,
        combined,
        mean=outcome.score(_METRIC, MEAN),
        gain=combined / first - 1.0 if first else None,
        jsd=divergence["jsd"],
        bernoulli_jsd=divergence["bernoulli_jsd"],
        gold_kl=divergence["gold_kl"],
    )
