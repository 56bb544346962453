"""Plots of tables and sweeps: PNG and SVG, on a light and on a dark ground.

Each figure is drawn once for every ground and written as NAME.png, NAME.svg, NAME-dark.png and
NAME-dark.svg. Colours are told apart by colour-blind readers too (Okabe and Ito), and series differ
in their markers besides. No global state of matplotlib is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.data.atomic import atomic_write
from glocal.errors import require

__all__ = ["Panel", "bar_plot", "check_plots", "dot_plot", "line_plot"]

_LIGHT = {"ground": "#ffffff", "ink": "#1f1f1f", "soft": "#d9d9d9",
          "series": ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#5c5c5c")}  # fmt: skip
_DARK = {"ground": "#16181d", "ink": "#e8e8e8", "soft": "#3a3d45",
         "series": ("#56b4e9", "#ff9d4d", "#2fd19f", "#f0a3cc", "#f0e442", "#b0b0b0")}  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DPI = 160

Series = Mapping[str, Sequence[float | None]]
Theme = Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        label: What is measured.
        series: A line of values for each name.
        log: Whether lines are drawn over a logarithmic scale, where all values are above 0.
    """

    label: str
    series: Series
    log: bool = False


def check_plots() -> None:
    """Say at once, not after hours of training, that matplotlib is missing."""
    require("matplotlib", extra="plots", purpose="plots (--no-plots does without)")


def line_plot(
    stem: Path,
    panels: Sequence[Panel],
    *,
    x: Sequence[int],
    x_label: str,
    title: str,
    note: str = "",
) -> list[Path]:
    """Values over layers, panels below one another with one x axis."""

    def draw(figure: Any, theme: Theme) -> None:
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            for number, (name, values) in enumerate(panel.series.items()):
                axis.plot(x, _gaps(values), label=name, markersize=5, **_line(theme, number))
            axis.set_ylabel(panel.label)
            axis.grid(True, color=theme["soft"], linewidth=0.6)
            if panel.log and _all_positive(panel):
                axis.set_yscale("log")
        axes[-1].set_xlabel(x_label)
        axes[-1].set_xticks(list(x))
        figure.align_ylabels(axes)
        _legend(figure, axes, theme, "top")

    return _save(stem, draw, size=(6.4, 1.4 + 2.6 * len(panels)), title=title, note=note)


def dot_plot(
    stem: Path, panels: Sequence[Panel], *, rows: Sequence[str], title: str, note: str = ""
) -> list[Path]:
    """A row for each variant, a panel for each metric; the last series has its values beside."""

    def draw(figure: Any, theme: Theme) -> None:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            for number, (name, values) in enumerate(panel.series.items()):
                style = {**_line(theme, number), "linestyle": "none"}
                axis.plot(_gaps(values), range(len(rows)), label=name, markersize=6, **style)
            _annotate(axis, values, theme)
            axis.set_xlabel(panel.label)
            axis.grid(True, axis="y", color=theme["soft"], linewidth=0.6)
            axis.margins(x=0.25, y=0.6 / max(1, len(rows)))
        axes[0].set_yticks(range(len(rows)), rows)
        axes[0].invert_yaxis()
        _legend(figure, axes, theme, "upper right")

    return _save(
        stem,
        draw,
        size=(3.2 + 0.065 * max(map(len, rows)) + 1.9 * len(panels), 1.9 + 0.38 * len(rows)),
        title=title,
        note=note,
    )


def bar_plot(
    stem: Path, panels: Sequence[Panel], *, groups: Sequence[str], title: str, note: str = ""
) -> list[Path]:
    """Groups of bars, a panel for each metric, side by side."""

    def draw(figure: Any, theme: Theme) -> None:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            width = 0.8 / max(1, len(panel.series))
            for number, (name, values) in enumerate(panel.series.items()):
                places = [i + (number - (len(panel.series) - 1) / 2) * width
                          for i in range(len(groups))]  # fmt: skip
                bars = axis.bar(places, _gaps(values), width * 0.92, label=name,
                                color=_colour(theme, number))  # fmt: skip
                axis.bar_label(bars, fmt=_one_decimal, color=theme["ink"], fontsize=7, padding=2)
            axis.set_title(panel.label, fontsize=10, color=theme["ink"])
            axis.set_xticks(range(len(groups)), groups)
            axis.grid(True, axis="y", color=theme["soft"], linewidth=0.6)
            axis.set_axisbelow(True)
            axis.margins(y=0.12)
        axes[0].set_ylabel("per cent")
        _legend(figure, axes, theme, "lower center")

    size = (1.0 + 3.1 * len(panels), 4.4)
    return _save(stem, draw, size=size, title=title, note=note)


# --- drawing ---------------------------------------------------------------------------------


def _colour(theme: Theme, number: int) -> str:
    colours: Sequence[str] = theme["series"]
    return colours[number % len(colours)]


def _line(theme: Theme, number: int) -> dict[str, Any]:
    marker = _MARKERS[number % len(_MARKERS)]
    return {"color": _colour(theme, number), "marker": marker, "linewidth": 1.6}


def _legend(figure: Any, axes: Sequence[Any], theme: Theme, place: str) -> None:
    """One for all panels, outside of them; none where there is nothing to tell apart.

    `top` is above the first panel and below the title, for a panel as wide as the figure.
    """
    found = [axis.get_legend_handles_labels() for axis in axes]
    if all(len(labels) < 2 for _, labels in found):
        return
    drawn = {label: handle for both in found for handle, label in zip(*both, strict=True)}
    columns = max(1, int(figure.get_figwidth() * 14) // (6 + max(map(len, drawn))))
    style = {"frameon": False, "fontsize": 8, "ncols": min(columns, len(drawn)),
             "labelcolor": theme["ink"]}  # fmt: skip
    if place == "top":
        above = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
        axes[0].legend(drawn.values(), drawn, **above, **style)
    else:
        figure.legend(drawn.values(), drawn, loc=f"outside {place}", **style)


def _all_positive(panel: Panel) -> bool:
    return all(v is None or v > 0 for values in panel.series.values() for v in values)


def _annotate(axis: Any, values: Sequence[float | None], theme: Theme) -> None:
    for row, value in enumerate(values):
        if value is not None:
            axis.annotate(f"{value:.1f}", (value, row), xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=8, color=theme["ink"])  # fmt: skip


def _one_decimal(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}"


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _save(
    stem: Path,
    draw: Callable[[Any, Theme], None],
    *,
    size: tuple[float, float],
    title: str,
    note: str,
) -> list[Path]:
    matplotlib = require("matplotlib", extra="plots", purpose="plots")
    figures = require("matplotlib.figure", extra="plots", purpose="plots")
    written = []
    for suffix, theme in (("", _LIGHT), ("-dark", _DARK)):
        with matplotlib.rc_context(_rc(theme)):
            figure = figures.Figure(figsize=size, dpi=_DPI, layout="constrained")
            draw(figure, theme)
            figure.suptitle(title, fontsize=11, x=0.01, ha="left", color=theme["ink"])
            if note:
                figure.supxlabel(_wrapped(note, size[0]), fontsize=7, color=theme["ink"], x=0.01,
                                 ha="left")  # fmt: skip
            for kind in ("png", "svg"):
                path = stem.with_name(f"{stem.name}{suffix}.{kind}")
                # Without the date the same numbers give the same file.
                metadata = {"Date": None} if kind == "svg" else None
                with atomic_write(path) as file:
                    figure.savefig(file, format=kind, metadata=metadata)
                written.append(path)
    return written


def _wrapped(text: str, inches: float) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width=max(40, int(inches * 19))))


def _rc(theme: Theme) -> dict[str, Any]:
    ink, ground = theme["ink"], theme["ground"]
    return {
        "figure.facecolor": ground,
        "axes.facecolor": ground,
        "savefig.facecolor": ground,
        "axes.edgecolor": ink,
        "axes.labelcolor": ink,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
        "svg.hashsalt": "glocal",
        "svg.fonttype": "none",  # letters stay letters: small files, and text that can be searched
    }
