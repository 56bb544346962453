"""Training with labels, the encoder, or both sharded over processes.

- Sharded labels: every process reads every document of a step, so that data and random numbers are
  those of a single process; each trains the labels of its slice (`label_shards.py`), and the parts
  that all labels share stay equal in all of them.
- A sharded encoder alone: the documents of a step are divided among the processes, as without
  sharding; each keeps a part of the encoder's weights and moments (`encoder_shards.py`), and the
  gradients of everything else are averaged after the backward pass.

Start it with torchrun; any number of processes gives the same model, up to rounding and dropout,
and resumes the run of any other number.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from glocal.cluster.encoder_shards import EncoderShards, check_layers, local_part
from glocal.cluster.label_shards import GroupSlice, join_labels, label_tensor_names, reduced
from glocal.cluster.sharded_folder import ShardedRunFolder
from glocal.config import Recipe
from glocal.config.resolve import check
from glocal.config.rules import LEAN_LABELS
from glocal.data.corpus import Corpus
from glocal.encoders.read_facts import read_encoder_facts
from glocal.errors import ConfigError
from glocal.ranking.document_ranker import DocumentRanker
from glocal.systems.system import System
from glocal.train.engine import Engine
from glocal.train.run import FitResult, fit


@dataclass(frozen=True)
class Sharding:
    """The parts of a system that processes share; without any, each has a copy of all."""

    labels: bool = False
    encoder: bool = False


class ShardedEngine(Engine):
    """An engine whose processes share the labels, the encoder, or both.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `bf16` or `fp32`.
        sharding: What is shared.
    """

    def __init__(
        self,
        device: str = "auto",
        precision: str = "auto",
        *,
        sharding: Sharding,
    ) -> None:
        super().__init__(device, precision)
        self.shard, self.shards, self.sharding = self.rank, self.world, sharding
        if sharding.labels:
            # All documents are read by each process, with the same random numbers.
            self.rank, self.world = 0, 1
            if self.shards > 1:
                self.label_slice = GroupSlice(self.shard, self.shards)
        self._encoder: EncoderShards | None = None
        self._sharded: set[int] = set()
        self._folder: ShardedRunFolder | None = None

    def fresh(self) -> ShardedEngine:
        """Return a new engine of the same kind."""
        return ShardedEngine(*self.requested, sharding=self.sharding)

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """None for a sharded encoder, whose layers are gathered one by one."""
        return None if self.sharding.encoder else super().compute_dtype

    def run_folder(self, out: Path) -> ShardedRunFolder:
        """Return the folder of the run, which all processes write to."""
        self._folder = ShardedRunFolder(out, self.shard, self.shards, self.wait)
        return self._folder

    @property
    def saves(self) -> bool:
        """Every process writes the rows it has."""
        return True

    def begin(self, system: System) -> None:
        """Shard the encoder, and note the parameters of which every process has other rows."""
        names = label_tensor_names(system) if self.sharding.labels else set()
        if self.sharding.encoder:
            check_layers(system.encoder)
            if self.shards > 1:
                self._encoder = EncoderShards(system, self.device)
                names |= {f"encoder.{name}" for name, _ in system.encoder.named_parameters()}
        self._sharded = {id(p) for name, p in system.named_parameters() if name in names}
        assert self._folder is not None, "the run has a folder"
        self._folder.use_system(system, **vars(self.sharding))

    def whole(self, system: System) -> contextlib.AbstractContextManager[None]:
        """Return a context within which the system has its whole encoder."""
        return super().whole(system) if self._encoder is None else self._encoder.gathered(system)

    def end(self, system: System) -> None:
        """Give the system its whole encoder."""
        if self._encoder is not None:
            self._encoder.gather(system)

    def join_labels(self, system: DocumentRanker) -> None:
        """Give the first process the parameters of all labels."""
        assert isinstance(system, System), "words alone are refused"
        if self.sharding.labels:
            join_labels(system, self.shard, self.shards)

    def wrap(
        self, system: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Move to the device; gradients are exchanged in the backward pass and in `clip`."""
        return system.to(self.device), optimizer

    @contextlib.contextmanager
    def accumulate(self, model: nn.Module, *, last: bool) -> Iterator[None]:
        """Exchange gradients of a sharded encoder only at the last part of a step."""
        if self._encoder is not None:
            self._encoder.exchange_gradients(last)
        yield

    def backward(self, loss: Tensor) -> None:
        """Compute gradients."""
        loss.backward()  # type: ignore[no-untyped-call,unused-ignore]

    def local_part(self, parameter: Tensor) -> Tensor:
        """Return the part of a parameter that this process has; it shares the memory."""
        return local_part(parameter)

    def replace_part(self, parameter: nn.Parameter, weight: Tensor) -> Tensor:
        """Set the part of a parameter that this process has; return what it was before."""
        own = local_part(parameter)  # in place: FSDP knows the memory of a part, not the parameter
        before = own.clone()
        own.copy_(weight)
        return before

    def all_finite(self, parameters: list[nn.Parameter]) -> bool:
        """Return whether all weights are finite numbers, those of other processes included."""
        parts = [local_part(p).isfinite().all() for p in parameters]
        infinite = (~torch.stack(parts).all()).float()
        return float(self._summed(infinite)) == 0

    def clip(
        self,
        parameters: list[nn.Parameter],
        max_norm: float,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        """Clip to the norm of all gradients, those of other processes' rows included."""
        if not self.sharding.labels:
            self._average_gradients([p for p in parameters if id(p) not in self._sharded])
        gradients = [(p, local_part(p.grad)) for p in parameters if p.grad is not None]
        squares = torch.zeros(2, device=self.device)
        for parameter, gradient in gradients:
            squares[int(id(parameter) in self._sharded)] += gradient.float().square().sum()
        norm = (squares[0] + self._summed(squares[1])).sqrt()
        factor = ((max_norm or math.inf) / (norm + 1e-6)).clamp(max=1.0)
        for _, gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))
        unusable = (~norm.isfinite()).float()
        fused: Any = optimizer
        fused.found_inf, fused.grad_scale = unusable, None
        return unusable

    def _average_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Average the gradients of parameters that every process has, as data parallelism does.

        A parameter that only some processes have used counts as zero in the others; one that none
        has used keeps no gradient.
        """
        if self.shards == 1:
            return
        used = torch.tensor([p.grad is not None for p in parameters], device=self.device)
        used = self._summed(used.float()) > 0
        for parameter, is_used in zip(parameters, used.tolist(), strict=True):
            if is_used:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
                parameter.grad /= self.shards

    def _summed(self, values: Tensor) -> Tensor:
        """Return values summed over the processes."""
        return reduced(values) if self.shards > 1 else values

    def describe(self) -> str:
        """Return one line: device, precision, processes, threads."""
        shared = " and ".join(name for name, is_shared in vars(self.sharding).items() if is_shared)
        return f"{super().describe()}, {shared} over {self.shards} processes"


def fit_sharded(
    recipe: Recipe, train: Corpus, *, labels: bool = False, encoder: bool = False, **options: Any
) -> FitResult:
    """Train a system that is sharded over the processes of torchrun.

    Args:
        recipe: The settings; nothing of them is left open.
        train: Texts with labels.
        labels: Give each process a part of the labels.
        encoder: Give each process a part of the encoder's weights.
        options: Arguments of `fit`.

    Raises:
        ConfigError: The recipe cannot be trained this way.
        TrainingError: A process was lost.
    """
    if recipe.train.label_precision == "auto":
        recipe = replace(recipe, train=replace(recipe.train, label_precision="fp32"))
    sharding = Sharding(labels, encoder)
    _check(recipe, sharding)

    def start(draft: Recipe, device: str, *, encoder: bool = True) -> ShardedEngine:
        return ShardedEngine(device, draft.train.precision, sharding=sharding)

    return fit(recipe, train, start_engine=start, **options)


def _check(recipe: Recipe, sharding: Sharding) -> None:
    checked = check(recipe, read_encoder_facts)
    train, encoder = recipe.train, recipe.encoder if sharding.encoder else None
    rules = {
        "the recipe has no network to shard: its words are fitted on CPUs, by all processes": (
            recipe.reads_words_alone
        ),
        "sharded training needs a recipe without a time budget (train.budget)": checked.is_open,
        "sharded training needs a single member (train.members=1)": train.members > 1,
        "sharded training computes in bf16 or fp32 (train.precision)": train.precision == "fp16",
        "sharded training keeps labels in fp32 (train.label_precision=fp32)": (
            train.label_precision in LEAN_LABELS
        ),
        "a sharded encoder reads the start of long texts alone, as all processes must compute "
        "its layers equally often (encoder.document_length=0)": encoder and encoder.document_length,
        "a sharded encoder cannot be compiled (train.compile=false)": encoder and train.compile,
    }
    ConfigError.raise_any([problem for problem, breaks in rules.items() if breaks])
