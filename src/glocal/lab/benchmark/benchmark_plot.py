"""A scatter plot as inline SVG: quality against a cost on a logarithmic axis.

- colours come from the page's style sheet by class, so that one drawing serves a light and a dark
  ground; recipes and baselines differ in their markers too;
- the line joins the points no other beats in both: what is worth choosing;
- each label goes to the free place nearest its point, with a thin line where it had to move away;
- a point far below the others stands at the lower edge with its value beside its name, as it would
  else press the others together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Point", "scatter"]

WIDTH, HEIGHT = 640, 460
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 48
LETTER, LINE, GAP = 6.5, 14, 5  # size of the labels' type, and room between two of them
RADIUS = 5
REACH = 4.0  # the axis goes this many times as far below the median as the best is above it

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Point:
    """A row in the plot.

    Attributes:
        label: Beside the point.
        x: A positive cost.
        y: Quality in per cent.
        group: Its class in the style sheet, `recipe` or `baseline`.
    """

    label: str
    x: float
    y: float
    group: str


def scatter(points: Sequence[Point], *, x_label: str, y_label: str, title: str) -> str:
    """The plot; an empty string without points."""
    if not points:
        return ""
    plot = _Plot(points)
    body = [*plot.axes(x_label, y_label), plot.front(), *plot.labels(), *plot.marks()]
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">\n' + "\n".join(body) + "\n</svg>"
    )


class _Plot:
    """The scales and what is drawn on them."""

    def __init__(self, points: Sequence[Point]) -> None:
        floor = _floor([point.y for point in points])
        self.points = sorted((_lifted(p, floor) for p in points), key=lambda p: (-p.y, p.x))
        xs, ys = [math.log10(p.x) for p in points], [p.y for p in self.points]
        self.x_low, self.x_high = _widened(min(xs), max(xs), least=0.5, share=0.08)
        self.y_low, self.y_high = _widened(min(ys), max(ys), least=2.0, share=0.1)

    def place(self, point: _Placed) -> tuple[float, float]:
        """Where a point goes."""
        return self._x(math.log10(point.x)), self._y(point.y)

    def _x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str) -> Iterator[str]:
        """Grid lines, ticks and names."""
        bottom, middle = HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) / 2
        for value in _log_ticks(self.x_low, self.x_high):
            x = self._x(math.log10(value))
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{value:,g}</text>'  # noqa: E501
        for value in _ticks(self.y_low, self.y_high):
            y = self._y(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'  # noqa: E501
        centre = (LEFT + WIDTH - RIGHT) / 2
        yield f'<text class="name" x="{centre}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'  # noqa: E501
        yield f'<text class="name" transform="translate(15 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'  # noqa: E501

    def front(self) -> str:
        """The line through the points that no other beats in both."""
        best = [
            p for p in self.points
            if not any(q.x <= p.x and q.y >= p.y and q != p for q in self.points)
        ]  # fmt: skip
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.place, sorted(best, key=_cost)))
        return f'<polyline class="front" points="{path}"/>'

    def marks(self) -> Iterator[str]:
        """Circles for recipes, squares for baselines; the numbers appear when pointed at."""
        for point in self.points:
            x, y = self.place(point)
            said = escape(f"{point.label}: {point.value:.1f} at {point.x:,.3g}")
            shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>'
            if point.group != "recipe":
                side = 2 * RADIUS - 1
                shape = f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side}" height="{side}"/>'  # noqa: E501
            yield f'<g class="mark {escape(point.group)}"><title>{said}</title>{shape}</g>'

    def labels(self) -> Iterator[str]:
        """Names, none over another or over a point as far as there is room."""
        taken = [_around(*self.place(point)) for point in self.points]
        for point in self.points:
            x, y = self.place(point)
            box = min(self._places(point), key=lambda b: self._cost_of(b, taken, x, y))
            taken.append(box)
            left, top, right, bottom = box
            if not (left - 14 < x < right + 14 and top - 14 < y < bottom + 14):
                end = min(max(x, left), right), min(max(y, top), bottom)
                yield f'<line class="leader" x1="{x:.1f}" y1="{y:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'  # noqa: E501
            yield f'<text class="label" x="{left:.1f}" y="{bottom - 3:.1f}">{escape(point.shown)}</text>'  # noqa: E501

    def _places(self, point: _Placed) -> Iterator[Box]:
        """Around the point, the near ones first."""
        x, y = self.place(point)
        width = LETTER * len(point.shown)
        for step in range(6):
            away = RADIUS + 3 + 15 * step
            for left, top in (
                (x + away, y - LINE / 2),
                (x - away - width, y - LINE / 2),
                (x - width / 2, y - away - LINE),
                (x - width / 2, y + away),
                (x + away / 2, y - away - LINE),
                (x + away / 2, y + away),
                (x - away / 2 - width, y - away - LINE),
                (x - away / 2 - width, y + away),
            ):
                yield left, top, left + width, top + LINE

    def _cost_of(self, box: Box, taken: Sequence[Box], x: float, y: float) -> float:
        """Overlap counts most, then leaving the plot, then the way from the point."""
        left, top, right, bottom = box
        outside = max(0.0, LEFT - left) + max(0.0, right - WIDTH + 2)
        outside += max(0.0, TOP - top) + max(0.0, bottom - (HEIGHT - BOTTOM))
        way = math.hypot((left + right) / 2 - x, (top + bottom) / 2 - y)
        roomy = left - GAP, top, right + GAP, bottom
        return 30 * sum(_overlap(roomy, other) for other in taken) + 500 * outside + way


@dataclass(frozen=True)
class _Placed(Point):
    """A point as it is drawn: `y` may be lifted to the lower edge, `value` is what was measured."""

    value: float = 0.0

    @property
    def shown(self) -> str:
        """The label, with the value where the height does not tell it."""
        return self.label if self.y == self.value else f"{self.label} ({self.value:.1f}) ↓"


def _floor(ys: Sequence[float]) -> float:
    """The height under which points are lifted."""
    middle = statistics.median(ys)
    return middle - max(REACH * (max(ys) - middle), 2.0)


def _lifted(point: Point, floor: float) -> _Placed:
    return _Placed(point.label, point.x, max(point.y, floor), point.group, point.y)


def _cost(point: Point) -> float:
    return point.x


def _around(x: float, y: float) -> Box:
    return x - RADIUS - 1, y - RADIUS - 1, x + RADIUS + 1, y + RADIUS + 1


def _overlap(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def _widened(low: float, high: float, *, least: float, share: float) -> tuple[float, float]:
    span = max(high - low, least)
    middle = (low + high) / 2
    return middle - span * (0.5 + share), middle + span * (0.5 + share)


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times them where there are few."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps: tuple[int, ...] = (1,) if high - low > 3 else (1, 3) if high - low > 2 else (1, 2, 5)
    values = [step * 10.0**power for power in powers for step in steps]
    return [value for value in values if low <= math.log10(value) <= high]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, four to eight of them."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= raw)
    first = math.ceil(low / step)
    return [round(number * step, 6) for number in range(first, math.floor(high / step) + 1)]
