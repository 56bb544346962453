"""Where a run computes, in its simplest form: one process on the CPU, without torch.

`Engine` (`engine.py`) extends it to devices, precisions and several processes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glocal.label_slice import EVERY_LABEL, LabelSlice
from glocal.ranking.document_ranker import DocumentRanker, check_device
from glocal.train.checkpoint import RunFolder

if TYPE_CHECKING:
    from glocal.companions.sparse.cluster_solvers import ClusterSolvers
    from glocal.config import Recipe


class LocalEngine:
    """One process on the CPU.

    Attributes:
        rank: The number of this process.
        world: The number of processes.
        is_main: Whether this process writes files and reports.
        precision: `bf16`, `fp16` or `fp32`.
        label_slice: The labels whose parameters this process trains.
    """

    rank: int = 0
    world: int = 1
    is_main: bool = True
    precision: str = "fp32"
    label_slice: LabelSlice = EVERY_LABEL

    @property
    def device_type(self) -> str:
        """The kind of device: `cpu` or `cuda`."""
        return "cpu"

    @property
    def solvers(self) -> ClusterSolvers | None:
        """The processes that fit a model of words together; None for a single one."""
        return None

    def fresh(self) -> Self:
        """Return a new engine of the same kind, without state such as fp16's scale."""
        return type(self)()

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with the chosen mixed precision."""
        return contextlib.nullcontext()

    def gather(self, items: list[Any]) -> list[Any]:
        """Return the items of all processes, in the order of the processes."""
        return items

    def seed(self, seed: int) -> None:
        """Seed the random generators that everything before the first step may use."""
        np.random.seed(seed % 2**32)  # noqa: NPY002 - third-party code may use the global generator

    def run_folder(self, out: Path) -> RunFolder:
        """Return the folder that holds the state of an unfinished run."""
        return RunFolder(out)

    def join_labels(self, system: DocumentRanker) -> None:
        """Give the first process the parameters of all labels, where processes share them."""

    def wait(self) -> None:
        """Wait until every process is here."""

    def describe(self) -> str:
        """Return one line: device, precision, processes, threads."""
        return f"CPU, {os.cpu_count()} cores"


def engine_for(recipe: Recipe, device: str, *, encoder: bool = True) -> LocalEngine:
    """Return the engine of a run: torch's, unless a single process on the CPU needs none.

    Args:
        recipe: The settings, without anything open.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        encoder: Whether an encoder can be trained; if not, the run is about words alone.
    """
    check_device(device)
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if (recipe.reads_words_alone or not encoder) and not several and not device.startswith("cuda"):
        return LocalEngine()
    from glocal.train.engine import Engine

    return Engine(device, recipe.train.precision)
