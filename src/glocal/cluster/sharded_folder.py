"""The state of a run whose labels are sharded: every process writes the rows of its slice.

A checkpoint has, besides the files of any other, `rows-RANK-of-RANKS.safetensors` with the label
tensors of each process; `model`, `optimizer` and `average` hold the rest. A process reads its slice
from whichever files have it, so that a run continues on any number of processes. The folder must be
on a file system that all processes share.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import Tensor

from glocal.cluster.label_shards import label_tensor_names, slice_bounds
from glocal.data.atomic import replace_dir
from glocal.storage.tensors import write_tensors
from glocal.train.checkpoint import RunFolder, RunState, optimizer_tensors

if TYPE_CHECKING:
    from glocal.systems.system import System

_SHARED = "shared.safetensors"
_GROUPS = ("model", "optimizer", "average")


class ShardedRunFolder(RunFolder):
    """The folder of a run, which all its processes write to.

    Args:
        out: The model directory the run will write.
        rank: Number of this process.
        ranks: Number of processes.
        wait: Waits until every process is here.
    """

    def __init__(self, out: Path, rank: int, ranks: int, wait: Callable[[], None]) -> None:
        super().__init__(out)
        self._rank, self._ranks, self._wait = rank, ranks, wait
        self.best_path = self.path / "best"
        self._sharded: set[str] = set()

    def use_system(self, system: System) -> None:
        """Remember which tensors are sharded; call it when they are."""
        self._sharded = label_tensor_names(system)

    def save(
        self,
        state: RunState,
        system: System,
        optimizer: torch.optim.Optimizer,
        *,
        average: Mapping[str, Tensor],
        random_states: Sequence[Mapping[str, Tensor]],
    ) -> None:
        """Write this process's part of a checkpoint; the first one publishes it."""

        def finish(folder: Path) -> None:
            for rank, states in enumerate(random_states):
                write_tensors(states, folder / f"random-{rank}.safetensors")
            (folder / "state.json").write_text(json.dumps(asdict(state)), encoding="utf-8")

        tensors = {
            "model": system.state_dict(),
            "optimizer": optimizer_tensors(system, optimizer),
            "average": average,
        }
        final = self.path / f"checkpoint-{state.step}"
        with self._writing():
            self._publish(final, tensors, finish)
            if self._rank == 0:
                self._remove_others(final)

    def save_best(self, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights of the best evaluation so far."""
        with self._writing():
            self._publish(self.best_path, {"model": weights}, lambda folder: None)

    def load_best(self) -> dict[str, Tensor]:
        """Return the weights of the best evaluation, those of labels for this process's slice."""
        return self._read(self.best_path, "model")

    def _read(self, folder: Path, group: str) -> dict[str, Tensor]:
        """Return the tensors of a group: all that are shared, and the rows of this slice."""
        found: dict[str, Tensor] = {}
        prefix = f"{group}/"
        with safe_open(folder / _SHARED, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                if name.startswith(prefix):
                    found[name.removeprefix(prefix)] = file.get_tensor(name)
        parts = sorted(folder.glob("rows-*-of-*.safetensors"), key=_part_number)
        with _Opened(parts) as files:
            for name in files[0].keys():  # noqa: SIM118
                if name.startswith(prefix):
                    rows = _rows([file.get_slice(name) for file in files], self._rank, self._ranks)
                    found[name.removeprefix(prefix)] = rows
        return found

    def _publish(
        self,
        final: Path,
        groups: Mapping[str, Mapping[str, Tensor]],
        finish: Callable[[Path], None],
    ) -> None:
        """Write this process's tensors of several groups; all processes call it."""
        folder = final.with_name(f".{final.name}.parts")
        if self._rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._wait()
        own: dict[str, Tensor] = {}
        shared: dict[str, Tensor] = {}
        for group, tensors in groups.items():
            for name, tensor in tensors.items():
                target = own if self._is_sharded(name, tensor) else shared
                target[f"{group}/{name}"] = tensor
        write_tensors(own, folder / f"rows-{self._rank}-of-{self._ranks}.safetensors")
        if self._rank == 0:
            write_tensors(shared, folder / _SHARED)
            finish(folder)
        self._wait()
        if self._rank == 0:
            replace_dir(folder, final)
        self._wait()

    def _is_sharded(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor has rows of labels; the optimizer's step counts have no rows."""
        return name.rpartition("|")[2] in self._sharded and tensor.dim() > 0


class _Opened:
    """Several safetensors files, open at once."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._files = paths, list[Any]()

    def __enter__(self) -> list[Any]:
        self._files = [safe_open(path, framework="pt") for path in self._paths]
        return [file.__enter__() for file in self._files]

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.__exit__(*exception)


def _part_number(path: Path) -> int:
    return int(path.name.split("-")[1])


def _rows(parts: Sequence[Any], rank: int, ranks: int) -> Tensor:
    """Return the rows of a process's slice from parts that follow each other."""
    lengths = [part.get_shape()[0] for part in parts]
    start, stop = slice_bounds(sum(lengths), rank, ranks)
    rows, first = [], 0
    for part, length in zip(parts, lengths, strict=True):
        low, high = max(start - first, 0), min(stop - first, length)
        if low < high:
            rows.append(part[low:high])
        first += length
    return torch.cat(rows)
