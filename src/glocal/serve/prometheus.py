"""Counters, gauges and histograms in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LabelValues = tuple[str, ...]


class Counter:
    """A number that only rises, for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help, self.labels = name, help, tuple(labels)
        self._values: dict[LabelValues, float] = {} if labels else {(): 0.0}
        self._lock = threading.Lock()

    def add(self, *values: str, amount: float = 1.0) -> None:
        """Raise the number."""
        with self._lock:
            self._values[values] = self._values.get(values, 0.0) + amount

    def lines(self) -> list[str]:
        """Return the samples."""
        with self._lock:
            found = sorted(self._values.items())
        return [f"{self.name}{_braces(self.labels, v)} {_number(n)}" for v, n in found]


class Gauge:
    """Numbers that are read when they are asked for."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,
        read: Callable[[], dict[LabelValues, float]],
        labels: Sequence[str] = (),
    ) -> None:
        self.name, self.help, self.labels = name, help, tuple(labels)
        self._read = read

    def lines(self) -> list[str]:
        """Return the samples."""
        found = sorted(self._read().items())
        return [f"{self.name}{_braces(self.labels, v)} {_number(n)}" for v, n in found]


class Histogram:
    """Counts of values up to each of some bounds."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name, self.help, self.labels, self.bounds = name, help, tuple(labels), tuple(bounds)
        self._counts: dict[LabelValues, list[int]] = {}
        self._sums: dict[LabelValues, float] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *values: str) -> None:
        """Count a value."""
        with self._lock:
            counts = self._counts.setdefault(values, [0] * (len(self.bounds) + 1))
            counts[bisect_left(self.bounds, value)] += 1
            self._sums[values] = self._sums.get(values, 0.0) + value

    def lines(self) -> list[str]:
        """Return the samples."""
        with self._lock:
            found = sorted((v, list(c), self._sums[v]) for v, c in self._counts.items())
        lines = []
        for values, counts, total in found:
            so_far = 0
            for bound, count in zip((*self.bounds, float("inf")), counts, strict=True):
                so_far += count
                braces = _braces((*self.labels, "le"), (*values, _number(bound)))
                lines.append(f"{self.name}_bucket{braces} {so_far}")
            lines.append(f"{self.name}_sum{_braces(self.labels, values)} {_number(total)}")
            lines.append(f"{self.name}_count{_braces(self.labels, values)} {so_far}")
        return lines


def render(metrics: Sequence[Counter | Gauge | Histogram]) -> str:
    """Return all metrics as text."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.lines()
    return "\n".join(lines) + "\n"


def _braces(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
