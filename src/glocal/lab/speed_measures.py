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
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal.experts.label_attention import LabelAttentionExpert
from glocal.lab.machine import PeakMemory
from glocal.lab.naive_models import DenseModel, dense_bce, dense_label_attention, dense_targets
from glocal.lab.synthetic_steps import (
    CPU,
    Shape,
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


def attention_speed(shape: Shape) -> list[Comparison]:
    """Compare label attention, forward and backward, with the dense form: time and memory."""
    system, recipe = synthetic_system(shape, [FULL])
    expert = next(e for e in system.modules() if isinstance(e, LabelAttentionExpert))
    sizes = (shape.batch, shape.length, system.encoder.hidden_size)
    hidden, gold = torch.randn(*sizes, device=shape.device), synthetic_batch(shape).gold
    limit = recipe.train.chunk_elements or ChunkUse.EXPERT_LOGITS.limit(shape.device.type)

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

    return _time_and_memory("label attention", ours, naive, shape)


def step_speed(shape: Shape) -> list[Comparison]:
    """Compare a training step with the dense model: time and memory."""
    with _autocast(shape):
        mine = training_step(shape, [FULL])
    return _time_and_memory("training step", mine, _dense_step(shape), shape)


def training_step(shape: Shape, settings: list[str]) -> Callable[[], None]:
    """Return a training step with its optimizer; on a GPU recorded, as in a run."""
    system, recipe = synthetic_system(shape, settings)
    optimizer = build_optimizer(system, recipe.train, shape.device)
    set_rates(optimizer, 0.01)
    batch = synthetic_batch(shape, vocabulary=vocabulary_of(system))
    position = TrainingPosition(900, 1000)
    graphs = None
    if shape.device.type == "cuda":
        system.encoder.compute_dtype = torch.bfloat16
        graphs = StepGraphs(system, torch.bfloat16)

    def step() -> None:
        if graphs is None or graphs.step(batch, position) is None:
            with _autocast(shape):
                loss = system(batch, position)
            torch.autograd.backward(loss)
            del loss  # a graph kept alive would tie gradients to this stream
        torch.nn.utils.clip_grad_norm_(system.parameters(), recipe.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _dense_step(shape: Shape) -> Callable[[], None]:
    model = _dense_model(shape).train()
    batch = synthetic_batch(shape, vocabulary=int(model.model.config.vocab_size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def step() -> None:
        with _autocast(shape):
            loss = model(batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _dense_model(shape: Shape) -> DenseModel:
    system, _ = synthetic_system(shape, [FULL])
    expert = next(e for e in system.modules() if isinstance(e, LabelAttentionExpert))
    return DenseModel(system.encoder.model, shape.labels, expert).to(shape.device)


def trainer_speed(shape: Shape) -> Comparison:
    """Compare a step of the global expert with the same encoder under Hugging Face's Trainer."""
    shape = replace(shape, repeats=shape.repeats + 2)
    ours = shape.seconds(training_step(shape, [FULL, GLOBAL]))
    theirs = _trainer_seconds(shape)
    what = f"training step, global expert, {shape.labels:,} labels"
    return Comparison(what, "Hugging Face Trainer", "ms", 1e3 * ours, 1e3 * theirs)


def _trainer_seconds(shape: Shape) -> float:
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    on_gpu = shape.device.type == "cuda"

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            self.times.append(time.perf_counter() - self.started)

    config = AutoConfig.from_pretrained(
        shape.encoder.removeprefix("random:"),
        num_labels=shape.labels,
        problem_type="multi_label_classification",
    )
    build: Any = AutoModelForSequenceClassification.from_config
    model = build(config)
    batch = synthetic_batch(replace(shape, device=CPU), vocabulary=int(config.vocab_size))
    targets = dense_targets(batch.gold, shape.labels)
    rows = [
        {"input_ids": ids, "attention_mask": mask.long(), "labels": target}
        for ids, mask, target in zip(batch.input_ids, batch.attention_mask, targets, strict=True)
    ]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=shape.repeats,
            per_device_train_batch_size=shape.batch,
            use_cpu=not on_gpu,
            bf16=on_gpu,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[clock]).train()
    return statistics.median(clock.times[2:])


def prediction_speed(shape: Shape, *, k: int = 10) -> list[Comparison]:
    """Compare the best labels of a batch with the dense model: time and memory."""
    system, _ = synthetic_system(shape, [FULL])
    assert isinstance(system, ExpertMixture)
    system.eval()
    dense = _dense_model(shape).eval()
    batch = synthetic_batch(shape, vocabulary=vocabulary_of(system))

    def ours() -> None:
        with torch.inference_mode(), _autocast(shape):
            system.topk(batch, k)

    def naive() -> None:
        with torch.inference_mode(), _autocast(shape):
            dense.topk(batch, k)

    return _time_and_memory("prediction", ours, naive, shape)


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


def _time_and_memory(
    what: str, ours: Callable[[], None], theirs: Callable[[], None], shape: Shape
) -> list[Comparison]:
    what = f"{what}, {shape.labels:,} labels"
    (mine, my_peak), (their, their_peak) = (_measure(act, shape) for act in (ours, theirs))
    found = [Comparison(what, "dense", "ms", 1e3 * mine, 1e3 * their)]
    if my_peak and their_peak:
        found.append(Comparison(what, "dense", "MB", my_peak / 1e6, their_peak / 1e6))
    return found


def _measure(act: Callable[[], None], shape: Shape) -> tuple[float, int | None]:
    act()  # memory that stays, such as the optimizer's, does not count
    if shape.device.type == "cuda":
        act()  # a step is recorded the second time
    gc.collect()
    peak = PeakMemory(shape.device)
    with peak.watch():
        act()
    return shape.seconds(act), peak.bytes


def _autocast(shape: Shape) -> contextlib.AbstractContextManager[Any]:
    on_gpu = shape.device.type == "cuda"
    return torch.autocast("cuda", torch.bfloat16) if on_gpu else contextlib.nullcontext()
