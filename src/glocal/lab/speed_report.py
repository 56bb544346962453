"""A report on speed: ratios in one run, and how times grow, as tables and plots."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from glocal.data.atomic import write_json, write_text
from glocal.lab.machine import describe_machine
from glocal.lab.plots import Panel, line_plot
from glocal.lab.shortlist_speed import shortlist_speed
from glocal.lab.speed_measures import (
    FULL,
    GLOBAL,
    Comparison,
    attention_speed,
    prediction_speed,
    start_up,
    step_speed,
    trainer_speed,
    training_step,
)
from glocal.lab.synthetic_steps import Shape, shape_folder
from glocal.ranking.ranker import choose_device
from glocal.table import Table, columns

Say = Callable[[str], None]
WAYS = {
    "global expert": [FULL, GLOBAL],
    "both experts": [FULL],
    "both, label clusters": ["candidates.mode=clusters"],
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run of measurements.

    Attributes:
        length: Tokens of each text.
        batch: Texts in a step.
        labels: Labels of the comparisons.
        few: Labels where another implementation could take too much memory.
        many: Labels among which the best ten of one text are found.
        growth: Labels of the growth curve.
        lengths: Tokens of the growth curve.
        batches: Texts of the growth curve.
    """

    length: int
    batch: int
    labels: int
    few: int
    many: int
    growth: tuple[int, ...]
    lengths: tuple[int, ...]
    batches: tuple[int, ...]


# By device, and whether the longer measurements were asked for.
_SIZES = {
    ("cpu", False): Sizes(
        64, 8, 30_938, 4_108, 100_000, (1_024, 4_108, 16_384), (32, 64, 128), (2, 4, 8)
    ),
    ("cpu", True): Sizes(
        128,
        16,
        30_938,
        4_108,
        501_070,
        (4_108, 30_938, 131_073, 501_070),
        (64, 128, 256),
        (4, 8, 16),
    ),
    ("cuda", False): Sizes(
        384, 64, 30_938, 4_108, 501_070, (4_108, 30_938, 501_070), (128, 256, 512), (16, 64, 128)
    ),
    ("cuda", True): Sizes(
        384,
        64,
        30_938,
        30_938,
        501_070,
        (4_108, 30_938, 131_073, 501_070, 1_000_000, 3_000_000),
        (64, 128, 256, 512),
        (8, 16, 32, 64, 128),
    ),
}


@dataclass
class SpeedReport:
    """The measurements of one machine.

    Attributes:
        device: The device that computed.
        comparisons: Ours beside others.
        curves: Milliseconds of a step by what grows (labels, tokens, texts), then by way.
        precisions: P@5 of planted labels, by way.
    """

    device: str
    comparisons: list[Comparison] = field(default_factory=list)
    curves: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    precisions: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        rows = [{**asdict(c), "ratio": c.ratio} for c in self.comparisons]
        return {"machine": describe_machine(), **vars(self), "comparisons": rows}

    def tables(self) -> list[Table]:
        """Return the tables that show it."""
        heads = columns("text", "measured", "compared with", "unit")
        heads += columns("number", "glocal", "other", "ratio")
        rows = [(c.what, c.other, c.unit, c.ours, c.theirs, c.ratio) for c in self.comparisons]
        note = "Ratio: how many times less glocal takes. Synthetic texts, random weights."
        if self.precisions:
            kept = self.precisions["shortlist"] / max(1e-9, self.precisions["full"])
            note += f" A shortlist keeps {100 * kept:.1f}% of full scoring's P@5 (planted labels)."
        tables = [Table(f"Speed on {self.device}", heads, rows, note)]
        for grows, lines in self.curves.items():
            sizes = sorted({size for line in lines.values() for size in line})
            heads = columns("text", "step, ms") + columns("number", *(f"{s:,}" for s in sizes))
            body = [(way, *(line.get(s) for s in sizes)) for way, line in lines.items()]
            tables.append(Table(f"Growth over {grows}", heads, body))
        return tables

    def write(self, out: Path, *, plots: bool = True) -> list[Path]:
        """Write `speed.json`, `speed.md` and a plot for each curve; return the files."""
        files = [
            write_json(out / "speed.json", self.to_dict()),
            write_text(out / "speed.md", "\n\n".join(t.markdown() for t in self.tables())),
        ]
        for grows, lines in self.curves.items() if plots else ():
            sizes = sorted({size for line in lines.values() for size in line})
            series = {way: [line.get(size) for size in sizes] for way, line in lines.items()}
            files += line_plot(
                out / f"speed-{grows}",
                [Panel("ms", series, log=True)],
                x=sizes,
                x_label=grows,
                title=f"A training step over {grows}",
                note=self.device,
            )
        return files


def measure_speed(
    *, device: str = "auto", long: bool = False, say: Say = lambda _: None
) -> SpeedReport:
    """Measure everything, one thing at a time.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        long: Measure larger sizes and longer curves.
        say: Receives what is measured next.
    """
    chosen = choose_device(device)
    sizes = _SIZES[chosen.type, long]
    machine = describe_machine()
    report = SpeedReport(str(machine["gpu"] if chosen.type == "cuda" else machine["processor"]))
    with tempfile.TemporaryDirectory() as folder:
        name = f"random:{shape_folder('minilm', Path(folder))}"
        shape = Shape(name, sizes.length, sizes.batch, sizes.labels, chosen)
        for what, comparisons in _comparisons(shape, sizes, report):
            say(what)
            report.comparisons += comparisons()
            gc.collect()
        few = replace(shape, labels=sizes.few)
        growth = {
            "labels": {n: replace(few, labels=n) for n in sizes.growth},
            "tokens": {n: replace(few, length=n) for n in sizes.lengths},
            "texts": {n: replace(few, batch=n) for n in sizes.batches},
        }
        for grows, shapes in growth.items():
            say(f"growth over {grows}")
            report.curves[grows] = {
                way: {size: _step(s, settings) for size, s in shapes.items()}
                for way, settings in WAYS.items()
            }
    return report


def _comparisons(
    shape: Shape, sizes: Sizes, report: SpeedReport
) -> Iterator[tuple[str, Callable[[], Sequence[Comparison]]]]:
    """Yield what is compared, and a function that compares it."""
    few, one = replace(shape, labels=sizes.few), replace(shape, batch=1, labels=sizes.many)

    def best_ten() -> list[Comparison]:
        found = shortlist_speed(one)
        report.precisions = found.precisions
        return found.comparisons(sizes.many)

    yield "start-up", start_up
    yield "label attention", lambda: attention_speed(shape)
    yield "training step", lambda: step_speed(few)
    yield "Hugging Face's Trainer", lambda: [trainer_speed(few)]
    yield "prediction", lambda: prediction_speed(few)
    yield "the best of many labels", best_ten


def _step(shape: Shape, settings: list[str]) -> float:
    """Return the milliseconds of a training step."""
    step = training_step(shape, settings)
    step()
    seconds = shape.seconds(step)
    del step
    gc.collect()
    return 1e3 * seconds
