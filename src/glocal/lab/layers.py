"""Layer sweeps: which layer of the encoder an expert should read (`glocal analyze layers`).

- the local expert of GlocalXML on layers 0 … N (its Figures 2 to 4): P@5 of the global expert, the
  local one and their combination, how much the two differ, and the relative gain of the
  combination over the global expert;
- the second expert of ME-XML as `D-n` and as `A-n` on layers 0 … N (its Figure 2), against P@5 and
  the KL divergence on gold labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.config import load_recipe
from glocal.encoders.read_facts import read_encoder_facts
from glocal.errors import ConfigError
from glocal.lab.analysis import StudyAnalysis
from glocal.lab.experiment.jobs import Result
from glocal.lab.plots import Panel, line_plot
from glocal.lab.variant_tables import Variant, VariantTable
from glocal.predict.evaluation import COMBINED, MEAN
from glocal.table import Table, columns

GLOBAL = "D-last"
_METRIC = "P@5"
_ATTENTION, _DOCUMENT = "A", "D"


@dataclass(frozen=True)
class LayerPoint:
    """Scores and divergences of one layer; shares are fractions.

    Attributes:
        expert: The second expert, such as `A-1`.
        layer: Its layer.
        first: P@5 of the expert on the last layer's document vector.
        second: P@5 of the second expert.
        combined: P@5 of both.
        mean: P@5 of the mean of their probabilities, if it was measured.
        gain: Relative gain of the combination over the first expert; None where that scores 0.
        mean_gain: Relative gain of the mean, as the paper has it.
        jsd: Jensen-Shannon divergence of their label distributions.
        bernoulli_jsd: Mean Jensen-Shannon divergence of each label's Bernoulli distributions.
        gold_kl: KL divergence on gold labels.
    """

    expert: str
    layer: int
    first: float
    second: float
    combined: float
    mean: float | None
    gain: float | None
    mean_gain: float | None
    jsd: float
    bernoulli_jsd: float
    gold_kl: float

    @classmethod
    def of(cls, result: Result) -> LayerPoint:
        """Make the point of a sweep's result."""
        parts = (GLOBAL, result.name, COMBINED)
        first, second, combined = (result.score(_METRIC, part) or 0.0 for part in parts)
        mean = result.score(_METRIC, MEAN)
        return cls(
            result.name,
            _layer(result.name),
            first,
            second,
            combined,
            mean=mean,
            gain=combined / first - 1.0 if first else None,
            mean_gain=mean / first - 1.0 if first and mean is not None else None,
            **{name: result.divergence[name] for name in ("jsd", "bernoulli_jsd", "gold_kl")},
        )


def layer_table(
    *, second_expert: bool = False, recipe: str | None = None, overrides: Sequence[str] = ()
) -> VariantTable:
    """Return a table with one variant for each layer of a recipe's encoder.

    Args:
        second_expert: Sweep `D-n` and `A-n` with ME-XML's losses, instead of the local expert.
        recipe: Another recipe than `glocalxml` or `me-xml`.
        overrides: `section.key=value`; they decide which encoder it is.
    """
    recipe = recipe or ("me-xml" if second_expert else "glocalxml")
    last = read_encoder_facts(load_recipe(recipe, overrides)).n_layers
    kinds = (_DOCUMENT, _ATTENTION) if second_expert else (_ATTENTION,)
    variants = tuple(
        Variant(f"{kind}-{n}", f"{GLOBAL} + {kind}-{n}", {"experts": [GLOBAL, f"{kind}-{n}"]})
        for kind in kinds
        for n in range(last + 1)
    )
    title = "Second expert by layer" if second_expert else "Local expert by layer"
    # An expert measured by itself must have been trained on every label and score every label.
    settings: dict[str, Any] = {"candidates.mode": "full"}
    if second_expert:
        settings["attention.projections"] = False  # ME-XML's attention, Eq. 2–4
    name = "second-expert" if second_expert else "layers"
    return VariantTable(name, title, recipe, variants, settings=settings)


def on_layers(table: VariantTable, layers: Sequence[int]) -> list[str]:
    """Return the names of a sweep's variants on these layers.

    Raises:
        ConfigError: If the encoder does not have one of them.
    """
    last = max(_layer(variant.name) for variant in table.variants)
    unknown = [str(layer) for layer in layers if not 0 <= layer <= last]
    if unknown:
        raise ConfigError(f"layer {', '.join(unknown)}: the encoder has layers 0 to {last}")
    return [variant.name for variant in table.variants if _layer(variant.name) in layers]


def _layer(expert: str) -> int:
    return int(expert.partition("-")[2])


class LayerSweep(StudyAnalysis):
    """The results of a sweep, whose table is from `layer_table`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.failed = {run.name: run.error for run in self.runs if run.has_failed}
        self.points = [LayerPoint.of(run) for run in self.runs if run.is_done]

    @property
    def compares_kinds(self) -> bool:
        """Whether document experts are swept as well."""
        return any(variant.name.startswith(_DOCUMENT) for variant in self.table.variants)

    def _table(self, prefix: str) -> Table:
        """Return a row for each expert and layer.

        Args:
            prefix: Opens the names of P@5 columns; without it, names are short.
        """
        experts = ("first", "second") if self.compares_kinds else ("global", "local")
        gain, *divergences = (
            ("mean gain %", "Bernoulli JSD", "KL on gold")
            if prefix
            else ("of mean", "Bernoulli", "gold KL")
        )
        return Table(
            f"{self.table.title}: {_METRIC} and divergence ({self.splits.split})",
            [
                *columns("text", "expert"),
                *columns("share", *(f"{prefix}{n}" for n in (*experts, "combined", "mean"))),
                *columns("points", "gain %", gain),
                *columns("number", "JSD", *divergences),
            ],
            [(expert, *rest) for p in self.points for expert, _, *rest in [asdict(p).values()]],
            note=" ".join([self.note, *(f"{n} failed: {e}." for n, e in self.failed.items())]),
        )

    def tables(self) -> list[Table]:
        """Return the table of the page."""
        return [self._table(f"{_METRIC} ")]

    def short_tables(self) -> list[Table]:
        """Return the table with short names."""
        return [self._table("")]

    def csv_table(self) -> Table:
        """Return the table of the page."""
        return self.tables()[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "title": self.table.title,
            "split": self.splits.split,
            "metric": _METRIC,
            "note": self.note,
            "points": [asdict(point) for point in self.points],
            "failed": self.failed,
        }

    def plot(self, stem: Path) -> list[Path]:
        """Draw ME-XML Figure 2, or GlocalXML Figures 2 to 4."""
        if not self.points:
            return []
        return self._plot_kinds(stem) if self.compares_kinds else self._plot_local(stem)

    def _plot_local(self, stem: Path) -> list[Path]:
        """Draw GlocalXML Figures 2 and 4, and Figure 3."""
        layers = [point.layer for point in self.points]
        names = {"global": "first", "local": "second", "combined": "combined", **self._mean_line()}
        scores = {name: self._series(attribute, 100) for name, attribute in names.items()}
        gains = {"gain": self._series("gain", 100)}
        if self._mean_line():
            gains["of mean"] = self._series("mean_gain", 100)
        panels = {
            "gain over global, %": gains,
            "JSD": {"JSD": self._series("jsd")},
            "Bernoulli JSD": {"Bernoulli JSD": self._series("bernoulli_jsd")},
        }
        shared: dict[str, Any] = {"x": layers, "x_label": "layer of the local expert"}
        return line_plot(
            stem.with_name(f"{stem.name}-scores"),
            [Panel(f"{_METRIC} ({self.splits.split})", scores)],
            title="Global, local and combined by the local expert's layer",
            note=self.note,
            **shared,
        ) + line_plot(
            stem.with_name(f"{stem.name}-divergence"),
            [Panel(label, series) for label, series in panels.items()],
            title="Relative gain and divergence of the experts",
            note=self.note,
            **shared,
        )

    def _mean_line(self) -> dict[str, str]:
        """Return the line of the plain mean, unless the experts are combined by it."""
        same = all(point.mean in (None, point.combined) for point in self.points)
        return {} if same else {"mean": "mean"}

    def _plot_kinds(self, stem: Path) -> list[Path]:
        """Draw ME-XML Figure 2."""
        layers = sorted({point.layer for point in self.points})

        def by_kind(attribute: str, scale: float) -> dict[str, list[float | None]]:
            kinds = (_DOCUMENT, _ATTENTION)
            return {f"{k}-n": self._series(attribute, scale, k, layers) for k in kinds}

        split = self.splits.split
        panels = [Panel(f"{_METRIC} of both ({split})", by_kind("combined", 100))]
        if self._mean_line():
            panels.append(Panel(f"{_METRIC} of their mean ({split})", by_kind("mean", 100)))
        panels.append(Panel("KL on gold labels", by_kind("gold_kl", 1), log=True))
        return line_plot(
            stem,
            panels,
            x=layers,
            x_label="layer of the second expert",
            title="The second expert as D-n and as A-n, beside D-last",
            note=self.note,
        )

    def _series(
        self, attribute: str, scale: float = 1, kind: str = "", layers: Sequence[int] = ()
    ) -> list[float | None]:
        """Return one value for each layer, of the experts of one kind."""
        found = {p.layer: getattr(p, attribute) for p in self.points if p.expert.startswith(kind)}
        values = [found.get(layer) for layer in layers or found]
        return [None if value is None else scale * value for value in values]
