"""The state of a run whose labels or encoder are sharded: every process writes the rows it has.

A checkpoint has `rows-RANK-of-RANKS.safetensors` with the rows of each process, and
`shared.safetensors` with the tensors that all have. A process reads its rows from whichever files
have them, so that a run continues on any number of processes. The folder must be on a file system
that all processes share.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import Tensor

from glocal.cluster.encoder_shards import chunk_bounds, local_part, sharded_like
from glocal.cluster.label_shards import label_tensor_names, slice_bounds
from glocal.data.atomic import replace_dir
from glocal.storage.tensors import write_tensors
from glocal.train.checkpoint import RunFolder, restore_optimizer

if TYPE_CHECKING:
    from glocal.systems.system import System

_SHARED = "shared.safetensors"
_ENCODER = "encoder."  # begins the names of its tensors
Bounds = Callable[[int, int, int], tuple[int, int]]  # of (rows, rank, ranks)


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
        self._bounds: dict[str, Bounds] = {}  # of sharded tensors, by name

    def use_system(self, system: System, *, labels: bool = True, encoder: bool = False) -> None:
        """Note which tensors are sharded: those of labels, of the encoder, or both."""
        if labels:
            self._bounds.update(dict.fromkeys(label_tensor_names(system), slice_bounds))
        if encoder:
            names = [name for name, _ in system.named_parameters() if name.startswith(_ENCODER)]
            self._bounds.update(dict.fromkeys(names, chunk_bounds))

    def save_best(self, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights of the best evaluation so far."""
        with self._writing():
            self._publish(self.best_path, {"model": weights}, lambda folder: None)

    def load_best(self) -> dict[str, Tensor]:
        """Return the weights of the best evaluation: the whole encoder, labels of this process."""
        return self._read(self.best_path, "model", whole_encoder=True)

    def _restore(self, system: System, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Set weights and moments to those of a checkpoint."""
        state = system.state_dict()
        weights = self._read(folder, "model")
        system.load_state_dict({n: sharded_like(t, state.get(n, t)) for n, t in weights.items()})
        parameters = dict(system.named_parameters())
        moments = {}
        for joined, tensor in self._read(folder, "optimizer").items():
            like = parameters[joined.rpartition("|")[2]]
            moments[joined] = sharded_like(tensor, like) if tensor.dim() else tensor
        restore_optimizer(system, optimizer, moments)

    def _read(self, folder: Path, group: str, *, whole_encoder: bool = False) -> dict[str, Tensor]:
        """Return the tensors of a group: all that are shared, and this process's rows of others."""
        found: dict[str, Tensor] = {}
        prefix = f"{group}/"
        parts = sorted(folder.glob("rows-*-of-*.safetensors"), key=_part_number)
        with contextlib.ExitStack() as opened:
            paths = [folder / _SHARED, *parts]
            shared, *files = [opened.enter_context(safe_open(p, framework="pt")) for p in paths]
            for name in {*shared.keys(), *files[0].keys()}:
                if name.startswith(prefix):
                    own = name.removeprefix(prefix)
                    holders = [shared] if name in shared.keys() else files  # noqa: SIM118
                    whole = whole_encoder and own.startswith(_ENCODER)
                    found[own] = self._own_rows(own, name, holders, whole=whole)
        return found

    def _own_rows(self, own: str, name: str, files: Sequence[Any], *, whole: bool) -> Tensor:
        """Return the rows of a tensor that this process has, from files that follow each other."""
        slices = [file.get_slice(name) for file in files]
        if not slices[0].get_shape():
            scalar: Tensor = files[0].get_tensor(name)
            return scalar
        lengths = [part.get_shape()[0] for part in slices]
        start, stop = 0, sum(lengths)
        bounds = self._bounds.get(own.rpartition("|")[2])
        if bounds is not None and not whole:
            start, stop = bounds(stop, self._rank, self._ranks)
        rows, before = [], 0
        for part, length in zip(slices, lengths, strict=True):
            low, high = max(start - before, 0), min(stop - before, length)
            if low < high:
                rows.append(part[low:high])
            before += length
        return torch.cat(rows) if rows else files[0].get_tensor(name)[:0]

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
                target[f"{group}/{name}"] = local_part(tensor)
        write_tensors(own, folder / f"rows-{self._rank}-of-{self._ranks}.safetensors")
        if self._rank == 0:
            write_tensors(shared, folder / _SHARED)
            finish(folder)
        self._wait()
        if self._rank == 0:
            replace_dir(folder, final)
        self._wait()

    def _remove_others(self, kept: Path) -> None:
        if self._rank == 0:
            super()._remove_others(kept)

    def _is_sharded(self, name: str, tensor: Tensor) -> bool:
        """Whether processes have rows of a tensor; the optimizer's step counts have no rows."""
        return name.rpartition("|")[2] in self._bounds and tensor.dim() > 0


def _part_number(path: Path) -> int:
    return int(path.name.split("-")[1])
