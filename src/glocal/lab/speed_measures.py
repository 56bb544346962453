"""Measurements of speed and memory, each beside something slower, in one process.

Every measurement returns a `Comparison`: ours, the other, and their ratio. They share machine, run
and inputs, so that ratios mean something where absolute times do not.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.data.batches import Batch
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.lab.machine import PeakMemory
from glocal.lab.naive_models import DenseModel, dense_bce, dense_label_attention, dense_targets
from glocal.lab.synthetic_steps import (
    median_seconds,
    synthetic_batch,
    synthetic_system,
    vocabulary_of,
)
from glocal.losses.bce import bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks
from glocal.losses.memory import ChunkUse
from glocal.systems.mixture import ExpertMixture
from glocal.systems.system import TrainingPosition
from glocal.train.graphs import StepGraphs
from glocal.train.optim import build_optimizer, set_rates

FULL = "candidates.mode=full"
GLOBAL = 'experts=["D-last"]'


@dataclass(frozen=True)
class Comparison:
    """One figure of ours and of another implementation.

    Attributes:
        what: The thing that is measured.
        other: The implementation it is compared with.
        unit: Unit of both figures; less is better.
        ours: Our figure.
        theirs: The other's figure.
    """

    what: str
    other: str
    unit: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """How many times less ours is."""
        return self.theirs / self.ours if self.ours else float("inf")


@dataclass(frozen=True)
class Shape:
    """The size of a step.

    Attributes:
        encoder: An encoder's name, or `random:` and a folder.
        length: Tokens of each text.
        batch: Texts.
        labels: Number of labels.
        repeats: Calls that are timed.
    """

    encoder: str
    length: int
    batch: int
    labels: int
    repeats: int = 3


def attention_speed(shape: Shape, device: torch.device) -> list[Comparison]:
    """Compare label attention, forward and backward, with the dense form: time and memory."""
    system, recipe = synthetic_system(shape.encoder, shape.length, shape.labels, [FULL], device)
    expert = next(e for e in system.modules() if isinstance(e, LabelAttentionExpert))
    hidden = torch.randn(shape.batch, shape.length, system.encoder.hidden_size, device=device)
    gold = synthetic_batch(shape.batch, shape.length, shape.labels, device).gold
    limit = recipe.train.chunk_elements or ChunkUse.EXPERT_LOGITS.limit(device.type)

    def ours() -> None:
        assert expert.key is not None
        state = (expert.key(hidden), expert.mlp_in(hidden), expert.mlp_out, None)
        width = expert.label_width
        chunks = label_chunks(shape.labels, documents=shape.batch, width=width, limit=limit)

        def loss(chunk: slice, flat: Any, rows: Any) -> Tensor:
            return bce_chunk(expert.score(tuple(flat), tuple(rows)), gold, chunk.start)

        total = chunked_loss(loss, chunks, state, expert.label_tensors()) / shape.batch
        torch.autograd.backward(total)
        expert.zero_grad(set_to_none=True)

    def naive() -> None:
        logits = dense_label_attention(expert, hidden, None)
        torch.autograd.backward(dense_bce(logits, dense_targets(gold, shape.labels)))
        expert.zero_grad(set_to_none=True)

    what = f"label attention, {shape.labels:,} labels"
    return _time_and_memory(what, ours, naive, shape, device)


def step_speed(shape: Shape, device: torch.device) -> list[Comparison]:
    """Compare a training step with the dense model: time and memory."""
    with _autocast(device):
        mine = training_step(shape, [FULL], device)
    naive = _dense_step(shape, device)
    what = f"training step, {shape.labels:,} labels"
    return _time_and_memory(what, mine, naive, shape, device)


def training_step(shape: Shape, settings: list[str], device: torch.device) -> Callable[[], None]:
    """Return a training step with its optimizer; on a GPU recorded, as in a run."""
    system, recipe = synthetic_system(shape.encoder, shape.length, shape.labels, settings, device)
    optimizer = build_optimizer(system, recipe.train, device)
    set_rates(optimizer, 0.01)
    batch = _batch(shape, vocabulary_of(system), device)
    position = TrainingPosition(900, 1000)
    graphs = None
    if device.type == "cuda":
        system.encoder.compute_dtype = torch.bfloat16
        graphs = StepGraphs(system, torch.bfloat16)

    def step() -> None:
        if graphs is None or graphs.step(batch, position) is None:
            with _autocast(device):
                loss = system(batch, position)
            torch.autograd.backward(loss)
            del loss  # a graph kept alive would tie gradients to this stream
        torch.nn.utils.clip_grad_norm_(system.parameters(), recipe.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _dense_step(shape: Shape, device: torch.device) -> Callable[[], None]:
    model = _dense_model(shape, device).train()
    batch = _batch(shape, int(model.model.config.vocab_size), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def step() -> None:
        with _autocast(device):
            loss = model(batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _dense_model(shape: Shape, device: torch.device) -> DenseModel:
    system, _ = synthetic_system(shape.encoder, shape.length, shape.labels, [FULL], device)
    expert = next(e for e in system.modules() if isinstance(e, LabelAttentionExpert))
    return DenseModel(system.encoder.model, shape.labels, expert).to(device)


def trainer_speed(shape: Shape, device: torch.device) -> Comparison:
    """Compare a step of the global expert with the same encoder under Hugging Face's Trainer."""
    mine = training_step(shape, [FULL, GLOBAL], device)
    ours = median_seconds(mine, device, repeats=shape.repeats + 2)
    del mine
    theirs = _trainer_seconds(shape, device)
    what = f"training step, global expert, {shape.labels:,} labels"
    return Comparison(what, "Hugging Face Trainer", "ms", 1e3 * ours, 1e3 * theirs)


def _trainer_seconds(shape: Shape, device: torch.device) -> float:
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if device.type == "cuda":
                torch.cuda.synchronize()
            self.times.append(time.perf_counter() - self.started)

    config = AutoConfig.from_pretrained(
        shape.encoder.removeprefix("random:"),
        num_labels=shape.labels,
        problem_type="multi_label_classification",
    )
    build: Any = AutoModelForSequenceClassification.from_config
    model = build(config)
    batch = _batch(shape, int(config.vocab_size), torch.device("cpu"))
    targets = dense_targets(batch.gold, shape.labels)
    rows = [
        {"input_ids": ids, "attention_mask": mask.long(), "labels": target}
        for ids, mask, target in zip(batch.input_ids, batch.attention_mask, targets, strict=True)
    ]
    steps, clock = shape.repeats + 2, Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=shape.batch,
            use_cpu=device.type == "cpu",
            bf16=device.type == "cuda",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[clock]).train()
    return statistics.median(clock.times[2:])


def prediction_speed(shape: Shape, device: torch.device, *, k: int = 10) -> list[Comparison]:
    """Compare the best labels of a batch with the dense model: time and memory."""
    system, _ = synthetic_system(shape.encoder, shape.length, shape.labels, [FULL], device)
    assert isinstance(system, ExpertMixture)
    system.eval()
    dense = _dense_model(shape, device).eval()
    batch = _batch(shape, vocabulary_of(system), device)

    def ours() -> None:
        with torch.inference_mode(), _autocast(device):
            system.topk(batch, k)

    def naive() -> None:
        with torch.inference_mode(), _autocast(device):
            dense.topk(batch, k)

    what = f"prediction, {shape.labels:,} labels"
    return _time_and_memory(what, ours, naive, shape, device)


def start_up() -> list[Comparison]:
    """Compare the time to help and to the library with that of what others need to start."""
    other = "import torch, transformers"
    theirs = _process_seconds("-c", "import torch; from transformers import AutoModel, Trainer")
    ours = {
        "glocal -h": _process_seconds("-m", "glocal", "-h"),
        "import glocal": _process_seconds("-c", "import glocal"),
    }
    return [
        Comparison(what, other, "ms", 1e3 * seconds, 1e3 * theirs) for what, seconds in ours.items()
    ]


def _process_seconds(*arguments: str) -> float:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def _batch(shape: Shape, vocabulary: int, device: torch.device) -> Batch:
    size, length, labels = shape.batch, shape.length, shape.labels
    return synthetic_batch(size, length, labels, device, vocabulary=vocabulary)


def _time_and_memory(
    what: str,
    ours: Callable[[], None],
    theirs: Callable[[], None],
    shape: Shape,
    device: torch.device,
) -> list[Comparison]:
    found: list[Comparison] = []
    figures = [_measure(act, shape, device) for act in (ours, theirs)]
    (mine, my_peak), (their, their_peak) = figures
    found.append(Comparison(what, "dense", "ms", 1e3 * mine, 1e3 * their))
    if my_peak and their_peak:
        found.append(Comparison(what, "dense", "MB", my_peak / 1e6, their_peak / 1e6))
    return found


def _measure(
    act: Callable[[], None], shape: Shape, device: torch.device
) -> tuple[float, int | None]:
    act()  # memory that stays, such as the optimizer's, does not count
    if device.type == "cuda":
        act()  # a step is recorded the second time
    gc.collect()
    peak = PeakMemory(device)
    with peak.watch():
        act()
    return median_seconds(act, device, repeats=shape.repeats), peak.bytes


@contextlib.contextmanager
def _autocast(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    with torch.autocast("cuda", torch.bfloat16):
        yield
