"""The speed of training on this machine, extrapolated from a few real steps on some texts.

A step takes `fixed + per_token · tokens` seconds: `fixed` is the part that does not grow with
the batch (the optimizer, gradients of the label vectors), so small batches are enough on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from glocal.config.resolve import ResolvedRecipe
from glocal.data.batches import Batch, Collator
from glocal.data.tokens import TokenStore
from glocal.encoders.tokenizer import TextTokenizer
from glocal.systems.system import System, TrainingPosition
from glocal.train.budget import Speed
from glocal.train.checkpoint import RunFolder
from glocal.train.context import RunContext
from glocal.train.engine import Engine
from glocal.train.gather import RunInputs
from glocal.train.optim import build_optimizer
from glocal.train.single import build_trainable

_SAMPLE = 512  # texts in the sample
# Texts of the two timed batches; on a GPU, a quarter of the recipe's batch and all of it.
_CPU_BATCHES = (2, 8)
_REPEATS = {"cpu": 1, "cuda": 5}
_LONGEST = 10.0  # seconds for one step


def measure(recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext) -> Speed | str:
    """Time a few steps and the writing of weights; return the reason where it fails.

    Args:
        recipe: A recipe with an encoder.
        inputs: Texts, labels and companions.
        context: Where the run computes and would write its checkpoints.
    """
    started = time.monotonic()
    try:
        engine = context.engine
        assert isinstance(engine, Engine)
        system, tokenizer = build_trainable(recipe, inputs, context)
        system.to(engine.device)
        built = time.monotonic() - started
        return _Trial(system, tokenizer, inputs, engine).speed(built, context.folder)
    except torch.OutOfMemoryError:
        return f"a batch of {recipe.train.batch_size} texts does not fit into the GPU's memory"


class _Trial:
    """A system on a sample of the training texts."""

    def __init__(
        self, system: System, tokenizer: TextTokenizer, inputs: RunInputs, engine: Engine
    ) -> None:
        self.system, self.engine, self.inputs = system, engine, inputs
        self.config = system.recipe.train
        size = min(_SAMPLE, len(inputs.train))
        order = np.random.default_rng(self.config.seed).permutation(len(inputs.train))[:size]
        sample = inputs.train.take(np.sort(order))
        texts = sample.texts()
        started = time.monotonic()
        encoded = tokenizer.encode_batch(texts, system.recipe.encoder.tokens_read)
        self.tokenising = (time.monotonic() - started) / size
        self.documents = Collator(
            TokenStore.in_memory(encoded),
            tokenizer.facts,
            gold=inputs.labels.encode(sample),
            n_labels=system.n_labels,
            companion_features=inputs.companions.features_for_texts(texts),
            chunking=system.chunking,
        )
        self.lengths = self.documents.tokens.lengths
        self.optimizer = build_optimizer(system, self.config, engine.device)

    def speed(self, built: float, folder: RunFolder) -> Speed:
        """Return the measured seconds, extrapolated to all texts."""
        inputs, config, world = self.inputs, self.config, self.engine.world
        fixed, per_token = self._step_costs()
        texts, dev = len(inputs.train), 0 if inputs.dev is None else len(inputs.dev)
        steps = -(-texts // config.batch_size)
        tokens = texts * float(self.lengths.mean())
        evaluation = dev * self._predicting() / world
        return Speed(
            once=self.tokenising * (texts + dev),
            member=built + 3 * evaluation,
            epoch=steps * fixed + tokens * per_token / world + evaluation + self._saving(folder),
        )

    def _step_costs(self) -> tuple[float, float]:
        self.system.train()
        if not self.system.recipe.encoder.gradient_checkpointing:
            self.system.encoder.compute_dtype = self.engine.compute_dtype

        def step(batch: Batch) -> None:
            with self.engine.autocast():
                loss = self.system.training_step(batch, TrainingPosition(0, 1, self.config.seed))
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

        small, large = (self._batch(size) for size in self._sizes())
        step(small)  # the first one allocates and warms up
        few, many = _n_tokens(small), _n_tokens(large)
        short = self._time(step, small)
        # On a machine this slow one step is enough: at worst the estimate is too long.
        slow = short * many / few > _LONGEST
        costs = (0.0, short / few) if slow else _line(few, short, many, self._time(step, large))
        self.system.encoder.compute_dtype = None
        return costs

    def _predicting(self) -> float:
        """Return the seconds per text to predict with the combination and with every expert."""
        self.system.eval()
        batch = self._batch(self._sizes()[1])

        def predict(batch: Batch) -> None:
            with self.engine.autocast():
                experts = self.system.expert_names
                self.system.topk(batch, min(20, self.system.n_labels), experts=experts)

        return self._time(predict, batch) / len(batch)

    def _saving(self, folder: RunFolder) -> float:
        """Return the seconds to write a checkpoint (weights, two moments) and the best weights."""
        trial = RunFolder(folder.path / f"trial-{self.engine.rank}")
        started = time.monotonic()
        trial.save_best(self.system.state_dict())
        seconds = time.monotonic() - started
        trial.remove()
        return seconds * (3 + bool(self.config.averaging) + (self.inputs.dev is not None))

    def _sizes(self) -> tuple[int, int]:
        most = min(self.config.batch_size, len(self.documents))
        wanted = _CPU_BATCHES if self.engine.device.type == "cpu" else (most // 4, most)
        return max(1, min(wanted[0], most // 2)), max(1, min(wanted[1], most))

    def _batch(self, size: int) -> Batch:
        """Return a batch of texts of typical length: half of all tokens are in shorter texts."""
        order = np.argsort(self.lengths, kind="stable")
        within = np.cumsum(self.lengths[order])
        middle = int(np.searchsorted(within, within[-1] / 2))
        start = min(max(0, middle - size // 2), len(order) - size)
        return self.documents(order[start : start + size]).to(self.engine.device)

    def _time(self, act: Callable[[Batch], None], batch: Batch) -> float:
        device = self.engine.device
        repeats = _REPEATS.get(device.type, 1)
        if device.type == "cuda":
            act(batch)
            torch.cuda.synchronize(device)
        started = time.monotonic()
        for _ in range(repeats):
            act(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.monotonic() - started) / repeats


def _n_tokens(batch: Batch) -> int:
    """Count the tokens of a batch, with padding and further chunks of long documents."""
    more = batch.continuation
    return batch.input_ids.numel() + (0 if more is None else more.places.numel())


def _line(few: int, short: float, many: int, long: float) -> tuple[float, float]:
    """Return fixed seconds and seconds per token from two steps; neither is below zero."""
    slope = max(0.0, (long - short) / max(1, many - few))
    fixed = long - slope * many
    return (fixed, slope) if fixed >= 0 else (0.0, long / many)
