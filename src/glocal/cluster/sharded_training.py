"""Training with label parameters sharded over processes.

Every process reads every document of a step, so that data and random numbers are those of a single
process; each trains the labels of its slice (`label_shards.py`), and the parts that all labels
share stay equal in all of them. Start it with torchrun; any number of processes gives the same
model, up to rounding, and resumes the run of any other number.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from glocal.cluster.label_shards import GroupSlice, join_labels, label_tensor_names
from glocal.cluster.sharded_folder import ShardedRunFolder
from glocal.config import Recipe
from glocal.config.resolve import check
from glocal.config.rules import LEAN_LABELS
from glocal.data.corpus import Corpus
from glocal.encoders.read_facts import read_encoder_facts
from glocal.errors import ConfigError, Remedy, TrainingError
from glocal.ranking.document_ranker import DocumentRanker
from glocal.systems.system import System
from glocal.train.engine import Engine
from glocal.train.run import FitResult, fit

_LOST = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe|socket", re.IGNORECASE)


class ShardedEngine(Engine):
    """An engine whose processes share the labels, not the documents.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `bf16` or `fp32`.
    """

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        super().__init__(device, precision)
        self.shard, self.shards = self.rank, self.world
        # All documents are read by each process, with the same random numbers.
        self.rank, self.world = 0, 1
        if self.shards > 1:
            self.label_slice = GroupSlice(self.shard, self.shards)
        self._sharded: set[int] = set()
        self._folder: ShardedRunFolder | None = None

    def fresh(self) -> ShardedEngine:
        """Return a new engine of the same kind."""
        return ShardedEngine(*self.requested)

    def run_folder(self, out: Path) -> ShardedRunFolder:
        """Return the folder of the run, which all processes write to."""
        self._folder = ShardedRunFolder(out, self.shard, self.shards, self.wait)
        return self._folder

    @property
    def saves(self) -> bool:
        """Every process writes the rows of its labels."""
        return True

    def begin(self, system: System) -> None:
        """Note the parameters of labels, of which every process has others."""
        names = label_tensor_names(system)
        self._sharded = {id(p) for name, p in system.named_parameters() if name in names}
        assert self._folder is not None, "the run has a folder"
        self._folder.use_system(system)

    def join_labels(self, system: DocumentRanker) -> None:
        """Give the first process the parameters of all labels."""
        assert isinstance(system, System), "words alone are refused"
        join_labels(system, self.shard, self.shards)

    def wrap(
        self, system: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Move to the device; gradients are exchanged where documents meet labels, not here."""
        return system.to(self.device), optimizer

    @contextlib.contextmanager
    def accumulate(self, model: nn.Module, *, last: bool) -> Iterator[None]:
        """Do nothing: gradients are complete after every part of a step."""
        yield

    def backward(self, loss: Tensor) -> None:
        """Compute gradients."""
        loss.backward()  # type: ignore[no-untyped-call,unused-ignore]

    def clip(
        self,
        parameters: list[nn.Parameter],
        max_norm: float,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        """Clip to the norm of all gradients, those of other processes' labels included."""
        squares = torch.zeros(2, device=self.device)
        for parameter in parameters:
            if parameter.grad is not None:
                own = id(parameter) in self._sharded
                squares[int(own)] += parameter.grad.float().square().sum()
        if self.shards > 1:
            labels = squares[1:].clone()
            distributed.all_reduce(labels)
            squares = torch.cat([squares[:1], labels])
        norm = squares.sum().sqrt()
        factor = ((max_norm or math.inf) / (norm + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor.to(parameter.grad.dtype))
        unusable = (~norm.isfinite()).float()
        fused: Any = optimizer
        fused.found_inf, fused.grad_scale = unusable, None
        return unusable

    def describe(self) -> str:
        """Return one line: device, precision, processes, threads."""
        return f"{super().describe()}, labels over {self.shards} processes"


def fit_sharded(recipe: Recipe, train: Corpus, **options: Any) -> FitResult:
    """Train a system whose labels are sharded over the processes of torchrun.

    Args:
        recipe: The settings; nothing of them is left open.
        train: Texts with labels.
        options: Arguments of `fit`.

    Raises:
        ConfigError: The recipe cannot be trained this way.
        TrainingError: A process was lost.
    """
    if recipe.train.label_precision == "auto":
        recipe = replace(recipe, train=replace(recipe.train, label_precision="fp32"))
    _check(recipe)

    def start(draft: Recipe, device: str, *, encoder: bool = True) -> ShardedEngine:
        return ShardedEngine(device, draft.train.precision)

    with _lost_processes(Path(str(options["out"]))):
        return fit(recipe, train, start_engine=start, **options)


def _check(recipe: Recipe) -> None:
    checked = check(recipe, read_encoder_facts)
    problems = []
    if recipe.reads_words_alone:
        problems.append("the recipe has no label parameters to shard: its words are fitted on CPUs")
    if checked.is_open:
        problems.append("sharded labels need a recipe without a time budget (train.budget)")
    if recipe.train.members > 1:
        problems.append("sharded labels need a single member (train.members=1)")
    if recipe.train.precision == "fp16":
        problems.append("sharded labels are trained in bf16 or fp32 (train.precision)")
    if recipe.train.label_precision in LEAN_LABELS:
        problems.append("sharded labels are kept in fp32 (train.label_precision=fp32)")
    if problems:
        raise ConfigError(problems)


@contextlib.contextmanager
def _lost_processes(out: Path) -> Iterator[None]:
    """Report the loss of another process in one line."""
    try:
        yield
    except RuntimeError as error:
        if not _LOST.search(str(error)):
            raise
        raise TrainingError(
            f"another process of the run was lost; the last checkpoint in {out}.run is kept, "
            "and any number of processes can go on with it",
            remedies=[Remedy("resume", "continue the run")],
        ) from error
