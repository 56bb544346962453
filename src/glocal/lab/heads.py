"""What an output layer costs: flat and APLC, measured and by the formulas of APLC-XLNet 3.3.

- parameters: counted, and by Eq. 6 (APLC) and Eq. 8 (flat); their ratio by Eq. 9. The formulas have
  no biases and no layer norm, the layers do;
- time of a training step with AdamW and of a prediction: measured, the ratio by Eq. 14. There p_i
  is the share of documents with a label in tail i, since a tail is computed for those alone;
- peak memory of building and training the layer.

Labels and documents are made up (`head_bench.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from glocal.errors import ConfigError
from glocal.heads.frequency_clusters import partition_sizes
from glocal.lab.grid import Column, Grid
from glocal.lab.output import write_analysis
from glocal.lab.plots import Panel, line_plot
from glocal.progress import Progress

if TYPE_CHECKING:
    import torch

    from glocal.lab.head_bench import Workload

__all__ = [
    "LABEL_COUNTS",
    "PARTITIONS",
    "HeadCost",
    "HeadCosts",
    "aplc_parameters",
    "cost_ratio",
    "measure_heads",
    "parameter_ratio",
]

FLAT = "flat"
# The paper's Table 2 (two clusters up to 31K labels, four beyond) and the third way of Figure 5.
PARTITIONS: dict[str, tuple[float, ...]] = {
    "APLC 0.5/0.5": (0.5, 0.5),
    "APLC 4 × 0.25": (0.25, 0.25, 0.25, 0.25),
    "APLC 0.1/0.2/0.7": (0.1, 0.2, 0.7),
}
# EURLex-4K, Wiki10-31K, and up to Wiki-500K and Amazon-670K.
LABEL_COUNTS = (3_956, 30_938, 131_073, 312_330, 501_008, 670_091)


def aplc_parameters(sizes: Sequence[int], width: int, q: float) -> int:
    """Eq. 6: `d (l_h + K) + Σ d/q^i (d + l_i)`."""
    from glocal.heads.aplc import tail_width

    tails = enumerate(sizes[1:], start=1)
    inner = sum(tail_width(width, q, i) * (width + size) for i, size in tails)
    return width * (sizes[0] + len(sizes) - 1) + inner


def parameter_ratio(sizes: Sequence[int], q: float) -> float:
    """Eq. 9: how many times larger the flat layer is."""
    return sum(sizes) / sum(size / q**i for i, size in enumerate(sizes))


def cost_ratio(sizes: Sequence[int], q: float, shares: Sequence[float]) -> float:
    """Eq. 14: how many times more the flat layer computes, `shares` being p_1 … p_K."""
    tails = enumerate(zip(sizes[1:], shares, strict=True), start=1)
    return sum(sizes) / (sizes[0] + sum(p * size / q**i for i, (size, p) in tails))


@dataclass(frozen=True)
class HeadCost:
    """One output layer at one number of labels."""

    labels: int
    head: str
    parameters: int
    parameters_formula: int
    parameter_ratio: float
    parameter_ratio_formula: float
    step_ms: float
    step_ratio: float
    step_ratio_formula: float
    predict_ms: float
    predict_ratio: float
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
        width: Of the document vectors.
        batch: Documents in a step.
        q: By which tails narrow.
        repeats: Measurements whose median is taken.
        device: `cpu` or `cuda`.
        progress: Called with (done, total) layers.
    """
    import torch

    from glocal.lab.head_bench import Workload

    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"the device must be cpu, cuda or cuda:N, not '{device}'") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("the device cuda was asked for, but PyTorch sees no GPU")
    most, fewest = max(map(len, PARTITIONS.values())), min(label_counts)
    if fewest < most:
        raise ConfigError(
            f"only {fewest} labels: the layers compared have up to {most} clusters, so there must "
            f"be at least {most} labels"
        )
    # The first step of a process sets up libraries; it is nobody's cost.
    _train_and_predict(Workload(100, width=width, batch=batch), None, q, 1, place)
    rows: list[HeadCost] = []
    total = len(label_counts) * (1 + len(PARTITIONS))
    for count in label_counts:
        workload = Workload(count, width=width, batch=batch)
        for row in _measure_all(workload, q, repeats, place):
            rows.append(row)
            if progress is not None:
                progress(len(rows), total)
    threads = f", {torch.get_num_threads()} threads" if place.type == "cpu" else ""
    return HeadCosts(rows, f"d {width}, batches of {batch}, q {q:g}; {place.type}{threads}")


def _measure_all(
    workload: Workload, q: float, repeats: int, device: torch.device
) -> Iterator[HeadCost]:
    flat = _train_and_predict(workload, None, q, repeats, device)
    yield _cost(workload, FLAT, (1.0,), q, flat, flat)
    for name, partition in PARTITIONS.items():
        found = _train_and_predict(workload, partition, q, repeats, device)
        yield _cost(workload, name, partition, q, found, flat)


class _Measured(NamedTuple):
    parameters: int
    step_ms: float
    predict_ms: float
    peak_bytes: int | None


def _train_and_predict(
    workload: Workload,
    partition: Sequence[float] | None,
    q: float,
    repeats: int,
    device: torch.device,
) -> _Measured:
    """Build a layer, a flat one without a partition, and measure it; it is gone afterwards."""
    from glocal.lab import head_bench as bench

    gc.collect()
    memory = bench.PeakMemory(device)
    with memory.watch():
        built = (
            bench.FlatHead(workload)
            if partition is None
            else bench.build_clusters(workload, partition, q)
        )
        head: Any = built.to(device)
        step = bench.training_step(head, workload, device)
        step_seconds = bench.median_seconds(step, repeats=repeats, device=device)
    topk: Any = bench.flat_topk if partition is None else bench.clustered_topk
    document = workload.documents(device)
    predict_seconds = bench.median_seconds(
        lambda: topk(head, document, min(5, workload.n_labels)), repeats=repeats, device=device
    )
    counted = sum(p.numel() for p in head.parameters())
    return _Measured(counted, 1e3 * step_seconds, 1e3 * predict_seconds, memory.bytes)


def _cost(
    workload: Workload,
    name: str,
    partition: Sequence[float],
    q: float,
    found: _Measured,
    flat: _Measured,
) -> HeadCost:
    sizes = partition_sizes(workload.n_labels, partition)
    return HeadCost(
        labels=workload.n_labels,
        head=name,
        parameters=found.parameters,
        parameters_formula=aplc_parameters(sizes, workload.width, q),
        parameter_ratio=flat.parameters / found.parameters,
        parameter_ratio_formula=parameter_ratio(sizes, q),
        step_ms=found.step_ms,
        step_ratio=flat.step_ms / found.step_ms,
        step_ratio_formula=cost_ratio(sizes, q, _shares(workload, partition)),
        predict_ms=found.predict_ms,
        predict_ratio=flat.predict_ms / found.predict_ms,
        peak_bytes=found.peak_bytes,
    )


def _shares(workload: Workload, partition: Sequence[float]) -> list[float]:
    import torch

    from glocal.heads.frequency_clusters import label_clusters
    from glocal.lab.head_bench import tail_shares

    clusters = label_clusters(workload.counts(), partition)
    return tail_shares(clusters, workload.gold(torch.device("cpu")))


class HeadCosts:
    """The measurements as tables, files and a plot.

    Args:
        rows: One for each number of labels and layer.
        setting: What they were measured with, in words.
    """

    def __init__(self, rows: Sequence[HeadCost], setting: str) -> None:
        self.rows = list(rows)
        self.note = (
            f"Labels drawn by Zipf's law; {setting}. × is how many times larger or slower the flat "
            "layer is, beside it by the formula. A step is forward, backward and AdamW."
        )

    def grids(self) -> list[Grid]:
        """Size and memory, and time."""
        return [self._sizes(), self._times()]

    def _sizes(self) -> Grid:
        columns = [
            Column("labels", "count"),
            Column("head", "text"),
            Column("parameters", "count"),
            Column("Eq. 6/8", "count"),
            Column("×", "number"),
            Column("Eq. 9", "number"),
            Column("peak MB", "number"),
        ]
        grid = Grid("Output layers: size and memory", columns)
        for row in self.rows:
            peak = None if row.peak_bytes is None else row.peak_bytes / 1e6
            ratios = (row.parameter_ratio, row.parameter_ratio_formula)
            counts = (row.parameters, row.parameters_formula)
            grid.rows.append((row.labels, row.head, *counts, *ratios, peak))
        return grid

    def _times(self) -> Grid:
        columns = [
            Column("labels", "count"),
            Column("head", "text"),
            Column("step ms", "number"),
            Column("×", "number"),
            Column("Eq. 14", "number"),
            Column("top-5 ms", "number"),
            Column("× top-5", "number"),
        ]
        grid = Grid("Output layers: time", columns, note=self.note)
        for row in self.rows:
            step = (row.step_ms, row.step_ratio, row.step_ratio_formula)
            grid.rows.append((row.labels, row.head, *step, row.predict_ms, row.predict_ratio))
        return grid

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write Markdown, CSV, JSON and a plot into a folder; gives their paths."""
        names = list(asdict(self.rows[0]))
        table = Grid("heads", [Column(name) for name in names])
        table.rows = [tuple(asdict(row).values()) for row in self.rows]
        paths = write_analysis(
            out / "heads",
            self.grids(),
            table=table,
            document=self.to_dict(),
            heading="What an output layer costs",
        )
        return paths + (self._plot(out / "heads") if plots else [])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"note": self.note, "rows": [asdict(row) for row in self.rows]}

    def _plot(self, stem: Path) -> list[Path]:
        heads = list(dict.fromkeys(row.head for row in self.rows))
        counts = sorted({row.labels for row in self.rows})

        def series(value: Callable[[HeadCost], float | None]) -> dict[str, list[float | None]]:
            found = {(row.head, row.labels): value(row) for row in self.rows}
            return {head: [found.get((head, count)) for count in counts] for head in heads}

        panels = [
            Panel("million parameters", series(lambda row: row.parameters / 1e6)),
            Panel("ms for a training step", series(lambda row: row.step_ms)),
            Panel("ms for the top 5", series(lambda row: row.predict_ms)),
        ]
        return line_plot(
            stem,
            panels,
            x=[round(count / 1000) for count in counts],
            x_label="thousand labels",
            title="What an output layer costs",
            note=self.note,
        )
