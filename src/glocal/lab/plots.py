"""Plots: figures of tables and sweeps (matplotlib), and the scatter plot of a web page (SVG).

Figures are drawn on a light and on a dark background, as NAME.png, NAME.svg, NAME-dark.png and
NAME-dark.svg. Colour-blind readers can tell the colours apart (Okabe and Ito), and series differ in
their markers too. No global state of matplotlib is changed.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from glocal.data.atomic import atomic_write
from glocal.errors import MissingExtraError, Remedy, require

_LIGHT = {"ground": "#ffffff", "ink": "#1f1f1f", "soft": "#d9d9d9",
          "series": ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#5c5c5c")}  # fmt: skip
_DARK = {"ground": "#16181d", "ink": "#e8e8e8", "soft": "#3a3d45",
         "series": ("#56b4e9", "#ff9d4d", "#2fd19f", "#f0a3cc", "#f0e442", "#b0b0b0")}  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P")

Theme = Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: the name of a measure and the values of each series.

    With `log` the scale is logarithmic, if all values are above 0.
    """

    label: str
    series: Mapping[str, Sequence[float | None]]
    log: bool = False


def check_plots() -> None:
    """Check that matplotlib is installed, before any work is done for plots."""
    try:
        require("matplotlib", extra="plots", purpose="plots")
    except MissingExtraError as error:
        remedies = [Remedy("plots", "continue without them", "False")]
        raise MissingExtraError(error.message, remedies=remedies) from error


def line_plot(
    stem: Path,
    panels: Sequence[Panel],
    *,
    x: Sequence[int],
    x_label: str,
    title: str,
    note: str = "",
) -> list[Path]:
    """Draw lines, panels below one another with one x axis."""

    def draw(figure: Any, theme: Theme) -> None:
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            for number, (name, values) in enumerate(panel.series.items()):
                axis.plot(x, _gaps(values), label=name, markersize=5, **_style(theme, number))
            axis.set_ylabel(panel.label)
            axis.grid(True, color=theme["soft"], linewidth=0.6)
            if panel.log and all(
                v is None or v > 0 for line in panel.series.values() for v in line
            ):
                axis.set_yscale("log")
        axes[-1].set_xlabel(x_label)
        axes[-1].set_xticks(list(x))
        figure.align_ylabels(axes)
        _legend(figure, axes, theme, "top")

    return _save(stem, draw, size=(6.4, 1.4 + 2.6 * len(panels)), title=title, note=note)


def dot_plot(
    stem: Path, panels: Sequence[Panel], *, rows: Sequence[str], title: str, note: str = ""
) -> list[Path]:
    """Draw a row for each variant and a panel for each metric; the last series shows its values."""

    def draw(figure: Any, theme: Theme) -> None:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            for number, (name, values) in enumerate(panel.series.items()):
                style = {**_style(theme, number), "linestyle": "none"}
                axis.plot(_gaps(values), range(len(rows)), label=name, markersize=6, **style)
            _annotate(axis, values, theme)
            axis.set_xlabel(panel.label)
            axis.grid(True, axis="y", color=theme["soft"], linewidth=0.6)
            axis.margins(x=0.25, y=0.6 / max(1, len(rows)))
        axes[0].set_yticks(range(len(rows)), rows)
        axes[0].invert_yaxis()
        _legend(figure, axes, theme, "upper right")

    wide = 3.2 + 0.065 * max(map(len, rows)) + 1.9 * len(panels)
    return _save(stem, draw, size=(wide, 1.9 + 0.38 * len(rows)), title=title, note=note)


def bar_plot(
    stem: Path, panels: Sequence[Panel], *, groups: Sequence[str], title: str, note: str = ""
) -> list[Path]:
    """Draw groups of bars, a panel for each metric, side by side."""

    def draw(figure: Any, theme: Theme) -> None:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            width = 0.8 / max(1, len(panel.series))
            for number, (name, values) in enumerate(panel.series.items()):
                offset = (number - (len(panel.series) - 1) / 2) * width
                places = [place + offset for place in range(len(groups))]
                colour = theme["series"][number % len(theme["series"])]
                bars = axis.bar(places, _gaps(values), width * 0.92, label=name, color=colour)
                shown = ["" if math.isnan(v) else f"{v:.1f}" for v in _gaps(values)]
                axis.bar_label(bars, shown, color=theme["ink"], fontsize=7, padding=2)
            axis.set_title(panel.label, fontsize=10, color=theme["ink"])
            axis.set_xticks(range(len(groups)), groups)
            axis.grid(True, axis="y", color=theme["soft"], linewidth=0.6)
            axis.set_axisbelow(True)
            axis.margins(y=0.12)
        axes[0].set_ylabel("per cent")
        _legend(figure, axes, theme, "lower center")

    size = (1.0 + 3.1 * len(panels), 4.4)
    return _save(stem, draw, size=size, title=title, note=note)


# --- parts of figures ------------------------------------------------------------------------


def _style(theme: Theme, number: int) -> dict[str, Any]:
    colours, place = theme["series"], number % len(_MARKERS)
    return {"color": colours[place], "marker": _MARKERS[place], "linewidth": 1.6}


def _legend(figure: Any, axes: Sequence[Any], theme: Theme, place: str) -> None:
    """Draw one legend for all panels, outside of them; none if no panel has two series.

    `top` is between the title and the first panel, for a panel as wide as the figure.
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


def _annotate(axis: Any, values: Sequence[float | None], theme: Theme) -> None:
    for row, value in enumerate(values):
        if value is not None:
            axis.annotate(f"{value:.1f}", (value, row), xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=8, color=theme["ink"])  # fmt: skip


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
            figure = figures.Figure(figsize=size, dpi=160, layout="constrained")
            draw(figure, theme)
            figure.suptitle(title, fontsize=11, x=0.01, ha="left", color=theme["ink"])
            if note:
                wrapped = textwrap.fill(note, max(40, int(size[0] * 19)))
                figure.supxlabel(wrapped, fontsize=7, color=theme["ink"], x=0.01, ha="left")
            for kind in ("png", "svg"):
                path = stem.with_name(f"{stem.name}{suffix}.{kind}")
                # Without the date the same numbers give the same file.
                metadata = {"Date": None} if kind == "svg" else None
                with atomic_write(path) as file:
                    figure.savefig(file, format=kind, metadata=metadata)
                written.append(path)
    return written


def _rc(theme: Theme) -> dict[str, Any]:
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    inks = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(grounds, theme["ground"]),
        **dict.fromkeys(inks, theme["ink"]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
        "svg.hashsalt": "glocal",
        "svg.fonttype": "none",  # letters stay letters: small files, and text that can be searched
    }


# --- scatter plot of a web page --------------------------------------------------------------

WIDTH, HEIGHT = 640, 460
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 48  # margins
LETTER, LINE, GAP = 6.5, 14, 5  # size of the labels' type, and room between two of them
RADIUS = 5  # of a point
REACH = 4.0  # the axis goes this many times as far below the median as the best is above it

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Point:
    """A point of a scatter plot.

    Attributes:
        label: Text beside the point.
        x: A positive cost.
        y: Quality in per cent.
        group: Its class in the style sheet; `recipe` is drawn as a circle, others as squares.
    """

    label: str
    x: float
    y: float
    group: str


def scatter(points: Sequence[Point], *, x_label: str, y_label: str, title: str) -> str:
    """Draw quality against a cost on a logarithmic axis, as inline SVG; empty without points.

    - colours come from the page's style sheet by class, so that one drawing serves a light and a
      dark page;
    - a line joins the points that no other beats in both;
    - each label goes to the free place nearest its point, with a thin line where that is far;
    - a point far below the others is drawn at the lower edge with its value beside its name, as it
      would otherwise press the others together.
    """
    if not points:
        return ""
    plot = _Scatter(points)
    body = [*plot.axes(x_label, y_label), plot.front(), *plot.labels(), *plot.marks()]
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">\n' + "\n".join(body) + "\n</svg>"
    )


class _Scatter:
    """The scales of a scatter plot and what is drawn on them."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = sorted(points, key=lambda p: (-p.y, p.x))
        middle = statistics.median(p.y for p in points)
        self.floor = middle - max(REACH * (self.points[0].y - middle), 2.0)
        xs, ys = [math.log10(p.x) for p in points], [max(p.y, self.floor) for p in points]
        self.x_low, self.x_high = _widened(xs, least=0.5, share=0.08)
        self.y_low, self.y_high = _widened(ys, least=2.0, share=0.1)

    def place(self, point: Point) -> tuple[float, float]:
        """Return where a point goes."""
        return self._x(math.log10(point.x)), self._y(max(point.y, self.floor))

    def _x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str) -> Iterator[str]:
        """Draw grid lines, ticks and names."""
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for value in _log_ticks(self.x_low, self.x_high):
            x = self._x(math.log10(value))
            yield _tag("line", class_="grid", x1=x, x2=x, y1=TOP, y2=bottom)
            yield _tag(
                "text", f"{value:,g}", class_="tick", x=x, y=bottom + 17, text_anchor="middle"
            )
        for value in _ticks(self.y_low, self.y_high):
            y = self._y(value)
            yield _tag("line", class_="grid", x1=LEFT, x2=right, y1=y, y2=y)
            yield _tag("text", f"{value:g}", class_="tick", x=LEFT - 8, y=y + 4, text_anchor="end")
        name = {"class_": "name", "text_anchor": "middle"}
        yield _tag("text", x_label, x=(LEFT + right) / 2, y=HEIGHT - 8, **name)
        turned = f"translate(15 {(bottom + TOP) / 2}) rotate(-90)"
        yield _tag("text", y_label, transform=turned, **name)

    def front(self) -> str:
        """Draw the line through the points that no other beats in both."""
        best = [
            p for p in self.points
            if not any(q.x <= p.x and q.y >= p.y and q != p for q in self.points)
        ]  # fmt: skip
        ordered = sorted(best, key=lambda p: p.x)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.place, ordered))
        return _tag("polyline", class_="front", points=path)

    def marks(self) -> Iterator[str]:
        """Draw the points; their numbers appear when pointed at."""
        for point in self.points:
            x, y = self.place(point)
            shape = _tag("circle", cx=x, cy=y, r=RADIUS)
            if point.group != "recipe":
                side = 2 * RADIUS - 1
                shape = _tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side)
            title = escape(f"{point.label}: {point.y:.1f} at {point.x:,.3g}")
            yield f'<g class="mark {escape(point.group)}"><title>{title}</title>{shape}</g>'

    def labels(self) -> Iterator[str]:
        """Draw names, none over another or over a point as far as there is room."""
        room = RADIUS + 1
        places = map(self.place, self.points)
        taken = [(x - room, y - room, x + room, y + room) for x, y in places]
        for point in self.points:
            x, y = self.place(point)
            low = point.y < self.floor
            shown = f"{point.label} ({point.y:.1f}) ↓" if low else point.label
            rated = [(_badness(b, taken, x, y), b) for b in _places(x, y, LETTER * len(shown))]
            box = min(rated, key=lambda pair: pair[0])[1]
            taken.append(box)
            left, top, right, bottom = box
            if not (left - 14 < x < right + 14 and top - 14 < y < bottom + 14):
                x2, y2 = min(max(x, left), right), min(max(y, top), bottom)
                yield _tag("line", class_="leader", x1=x, y1=y, x2=x2, y2=y2)
            yield _tag("text", shown, class_="label", x=left, y=bottom - 3)


def _tag(name: str, text: str = "", **attributes: str | float) -> str:
    """Write an SVG element."""
    written = [
        f"{key.rstrip('_').replace('_', '-')}="
        + (f'"{value:.1f}"' if isinstance(value, float) else f'"{value}"')
        for key, value in attributes.items()
    ]
    end = f">{escape(text)}</{name}>" if text else "/>"
    return f"<{name} {' '.join(written)}{end}"


def _places(x: float, y: float, width: float) -> Iterator[Box]:
    """Yield places for a label around a point, the near ones first."""
    sides = ((1, 0), (-1, 0), (0, -1), (0, 1), (0.5, -1), (0.5, 1), (-0.5, -1), (-0.5, 1))
    for away in range(RADIUS + 3, RADIUS + 93, 15):
        for across, down in sides:
            left = x + across * away - width * (across < 0 or 0.5 * (across == 0))
            top = y + down * away - LINE * (1 - down) / 2
            yield left, top, left + width, top + LINE


def _badness(box: Box, taken: Sequence[Box], x: float, y: float) -> float:
    """Rate a place: overlap counts most, then leaving the plot, then the way from the point."""
    left, top, right, bottom = box
    outside = max(0.0, LEFT - left) + max(0.0, right - WIDTH + 2)
    outside += max(0.0, TOP - top) + max(0.0, bottom - (HEIGHT - BOTTOM))
    overlap = 0.0
    for other in taken:
        width = min(right + GAP, other[2]) - max(left - GAP, other[0])
        overlap += max(0.0, width) * max(0.0, min(bottom, other[3]) - max(top, other[1]))
    way = math.hypot((left + right) / 2 - x, (top + bottom) / 2 - y)
    return 30 * overlap + 500 * outside + way


def _widened(values: Sequence[float], *, least: float, share: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    half = max(high - low, least) * (0.5 + share)
    return (low + high) / 2 - half, (low + high) / 2 + half


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and multiples of them where there are few."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps: tuple[int, ...] = (1,) if high - low > 3 else (1, 3) if high - low > 2 else (1, 2, 5)
    values = [step * 10.0**power for power in powers for step in steps]
    return [value for value in values if low <= math.log10(value) <= high]


def _ticks(low: float, high: float) -> list[float]:
    """Return four to eight round numbers."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= raw)
    first = math.ceil(low / step)
    return [round(number * step, 6) for number in range(first, math.floor(high / step) + 1)]
