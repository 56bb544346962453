"""Costs of output layers, flat and APLC: measured, and by the formulas of APLC-XLNet 3.3.

- parameters: counted, and by Eq. 6 (APLC) and Eq. 8 (flat); their ratio by Eq. 9. The formulas have
  no biases and no layer norm, the layers do;
- time of a training step with AdamW and of a prediction: measured; the ratio by Eq. 14, where p_i
  is the share of documents with a label in tail i, since a tail is computed for those alone;
- peak memory of building and training the layer.

Labels and documents are synthetic (`head_bench.py`).
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.errors import ConfigError
from glocal.heads.frequency_clusters import label_clusters, partition_sizes
from glocal.lab.analysis import Analysis
from glocal.lab.machine import PeakMemory
from glocal.lab.plots import Panel, line_plot
from glocal.progress import Progress, report
from glocal.table import Column, Style, Table

if TYPE_CHECKING:
    from glocal.lab.head_bench import Workload

FLAT = (1.0,)
# The paper's Table 2 (two clusters up to 31K labels, four beyond) and the third way of Figure 5.
PARTITIONS: dict[str, tuple[float, ...]] = {
    "APLC 0.5/0.5": (0.5, 0.5),
    "APLC 4 × 0.25": (0.25, 0.25, 0.25, 0.25),
    "APLC 0.1/0.2/0.7": (0.1, 0.2, 0.7),
}
# EURLex-4K, Wiki10-31K, and up to Wiki-500K and Amazon-670K.
LABEL_COUNTS = (3_956, 30_938, 131_073, 312_330, 501_008, 670_091)
# Heading, style and key of each column.
_SIZES: tuple[tuple[str, Style, str], ...] = (
    ("labels", "count", "labels"),
    ("head", "text", "head"),
    ("parameters", "count", "parameters"),
    ("Eq. 6/8", "count", "parameters_formula"),
    ("×", "number", "parameter_ratio"),
    ("Eq. 9", "number", "parameter_ratio_formula"),
    ("peak MB", "number", "peak_megabytes"),
)
_TIMES: tuple[tuple[str, Style, str], ...] = (
    ("labels", "count", "labels"),
    ("head", "text", "head"),
    ("step ms", "number", "step_ms"),
    ("×", "number", "step_ratio"),
    ("Eq. 14", "number", "step_ratio_formula"),
    ("top-5 ms", "number", "predict_ms"),
    ("× top-5", "number", "predict_ratio"),
)


def aplc_parameters(sizes: Sequence[int], width: int, q: float) -> int:
    """Return the parameters by Eq. 6: `d (l_h + K) + Σ d/q^i (d + l_i)`."""
    from glocal.heads.aplc import tail_width

    tails = enumerate(sizes[1:], start=1)
    inner = sum(tail_width(width, q, i) * (width + size) for i, size in tails)
    return width * (sizes[0] + len(sizes) - 1) + inner


def parameter_ratio(sizes: Sequence[int], q: float) -> float:
    """Return how many times larger the flat layer is, by Eq. 9."""
    return sum(sizes) / sum(size / q**i for i, size in enumerate(sizes))


def cost_ratio(sizes: Sequence[int], q: float, shares: Sequence[float]) -> float:
    """Return how many times more the flat layer computes, by Eq. 14; `shares` are p_1 … p_K."""
    tails = enumerate(zip(sizes[1:], shares, strict=True), start=1)
    return sum(sizes) / (sizes[0] + sum(p * size / q**i for i, (size, p) in tails))


@dataclass(frozen=True)
class HeadCost:
    """Costs of one output layer at one number of labels; ratios are to a flat layer."""

    labels: int
    head: str
    parameters: int
    parameters_formula: int
    parameter_ratio_formula: float
    step_ms: float
    step_ratio_formula: float
    predict_ms: float
    peak_bytes: int | None


def measure_heads(
    label_counts: Sequence[int] = LABEL_COUNTS,
    *,
    width: int = 384,
    batch: int = 32,
    q: float = 2.0,
    repeats: int = 5,
    device: str = "cpu",
    progress: Progress | None = None,
) -> HeadCosts:
    """Measure a flat layer and every partition at each number of labels.

    Args:
        label_counts: Sizes of the label space.
        width: Width of the document vectors.
        batch: Documents in a step.
        q: Factor by which each tail is narrower than the one before.
        repeats: Measurements whose median is taken.
        device: `cpu` or `cuda`.
        progress: Called with (done, total) layers.

    Raises:
        ConfigError: If the device cannot be used, or there are fewer labels than clusters.
    """
    import torch

    from glocal.lab.head_bench import Workload
    from glocal.ranking.ranker import choose_device

    place = choose_device(device)
    most, fewest = max(map(len, PARTITIONS.values())), min(label_counts)
    if fewest < most:
        raise ConfigError(
            f"only {fewest} labels: the layers compared have up to {most} clusters, so there must "
            f"be at least {most} labels"
        )
    # The first step of a process sets up libraries, which is no cost of a layer.
    workload = Workload(100, width=width, batch=batch, device=place)
    _measure(workload, "", FLAT, q=q, repeats=1)
    rows: list[HeadCost] = []
    layers = list(itertools.product(label_counts, {"flat": FLAT, **PARTITIONS}.items()))
    for count, (name, partition) in layers:
        workload = replace(workload, n_labels=count)
        rows.append(_measure(workload, name, partition, q=q, repeats=repeats))
        report(progress, len(rows), len(layers))
    threads = f", {torch.get_num_threads()} threads" if place.type == "cpu" else ""
    return HeadCosts(rows, f"d {width}, batches of {batch}, q {q:g}; {place.type}{threads}")


def _measure(
    workload: Workload, name: str, partition: Sequence[float], *, q: float, repeats: int
) -> HeadCost:
    """Build a layer and measure it; its memory is free again afterwards."""
    from glocal.lab import head_bench as bench
    from glocal.lab.synthetic_steps import median_seconds

    gc.collect()
    device = workload.device
    memory = PeakMemory(device)
    with memory.watch():
        head = (
            bench.FlatHead(workload)
            if partition == FLAT
            else bench.build_clusters(workload, partition, q)
        ).to(device)
        step = bench.training_step(head, workload)
        step_ms = 1e3 * median_seconds(step, device, repeats=repeats)
    document, k = workload.documents(), min(5, workload.n_labels)
    predict = partial(bench.head_topk, head, document, k)
    predict_seconds = median_seconds(predict, device, repeats=repeats)
    sizes = partition_sizes(workload.n_labels, partition)
    clusters = label_clusters(workload.counts(), partition)
    shares = bench.tail_shares(clusters, workload.gold())
    return HeadCost(
        labels=workload.n_labels,
        head=name,
        parameters=sum(p.numel() for p in head.parameters()),
        parameters_formula=aplc_parameters(sizes, workload.width, q),
        parameter_ratio_formula=parameter_ratio(sizes, q),
        step_ms=step_ms,
        step_ratio_formula=cost_ratio(sizes, q, shares),
        predict_ms=1e3 * predict_seconds,
        peak_bytes=memory.bytes,
    )


class HeadCosts(Analysis):
    """The measurements as tables, files and a plot.

    Args:
        rows: One for each number of labels and layer.
        setting: How they were measured, in words.
    """

    stem, heading = "heads", "Costs of output layers"

    def __init__(self, rows: Sequence[HeadCost], setting: str) -> None:
        self.rows = list(rows)
        self.note = (
            f"Labels drawn by Zipf's law; {setting}. × is how many times larger or slower the flat "
            "layer is, beside it by the formula. A step is forward, backward and AdamW."
        )

    def tables(self) -> list[Table]:
        """Return size and memory, and time."""
        both = {"Output layers: size and memory": _SIZES, "Output layers: time": _TIMES}
        tables = [
            Table(
                title,
                [Column(name, style) for name, style, _ in fields],
                [tuple(record[key] for *_, key in fields) for record in self.records()],
            )
            for title, fields in both.items()
        ]
        tables[-1].note = self.note
        return tables

    def records(self) -> list[dict[str, Any]]:
        """Return every row with how many times larger or slower the flat layer is."""
        flat = {row.labels: row for row in self.rows if row.head == "flat"}
        return [
            {
                **asdict(row),
                "parameter_ratio": flat[row.labels].parameters / row.parameters,
                "step_ratio": flat[row.labels].step_ms / row.step_ms,
                "predict_ratio": flat[row.labels].predict_ms / row.predict_ms,
                "peak_megabytes": row.peak_bytes and row.peak_bytes / 1e6,
            }
            for row in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"note": self.note, "rows": self.records()}

    def plot(self, stem: Path) -> list[Path]:
        """Draw parameters and times over the number of labels."""
        heads = list(dict.fromkeys(row.head for row in self.rows))
        counts = sorted({row.labels for row in self.rows})

        def panel(label: str, attribute: str, scale: float = 1.0) -> Panel:
            found = {(row.head, row.labels): getattr(row, attribute) / scale for row in self.rows}
            series = {head: [found.get((head, count)) for count in counts] for head in heads}
            return Panel(label, series)

        return line_plot(
            stem,
            [
                panel("million parameters", "parameters", 1e6),
                panel("ms for a training step", "step_ms"),
                panel("ms for the top 5", "predict_ms"),
            ],
            x=[round(count / 1000) for count in counts],
            x_label="thousand labels",
            title=self.heading,
            note=self.note,
        )
