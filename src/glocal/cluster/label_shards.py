"""Label parameters sharded over the processes of a group: each has a slice of the labels.

- `GroupSlice` is the slice as a system sees it (`label_slice.py`). A system built with it has the
  label tensors of the slice alone, with the values that a single process would give them. Losses,
  gradients and the best labels are those of a single process, up to rounding.
- `join_labels` gathers the label tensors of all processes in the first one, which stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from glocal.errors import ConfigError
from glocal.label_slice import EVERY_LABEL, LabelSlice
from glocal.ranking.topk import RunningTopK
from glocal.systems.system import System

# Rows drawn at a time. PyTorch draws numbers in sixteens: a multiple gives those of a whole matrix.
_DRAWN = 4096


def slice_bounds(n_labels: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the first label of a rank's slice and the one after its last; slices are even."""
    return n_labels * rank // ranks, n_labels * (rank + 1) // ranks


class GroupSlice(LabelSlice):
    """The slice of one process of the default process group.

    Args:
        rank: Number of the process.
        ranks: Number of processes.
    """

    sharded = True

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.first = rank, ranks, rank == 0

    def bounds(self, n_labels: int) -> tuple[int, int]:
        """Return the first label of the slice and the one after its last."""
        if n_labels < self.ranks:
            raise ConfigError(
                f"{n_labels} labels cannot be sharded over {self.ranks} processes; start fewer of "
                "them"
            )
        return slice_bounds(n_labels, self.rank, self.ranks)

    def draw(self, n_labels: int, width: int, std: float) -> Tensor:
        """Return the slice's rows (n, width) of a matrix drawn from N(0, std) for all labels.

        All rows are drawn, as a single process would, but only some at a time.
        """
        own, stop = self.bounds(n_labels)
        rows = torch.empty(stop - own, width)
        pieces = max(1, n_labels // _DRAWN)
        for piece in range(pieces):
            start = piece * _DRAWN
            end = n_labels if piece == pieces - 1 else start + _DRAWN
            drawn = torch.empty(end - start, width).normal_(0.0, std)
            low, high = max(own, start), min(stop, end)
            if low < high:
                rows[low - own : high - own] = drawn[low - start : high - start]
        return rows

    def local(self, labels: Tensor, n_labels: int) -> Tensor:
        """Return label ids counted within the slice; −1 for padding and labels outside it."""
        start, stop = self.bounds(n_labels)
        return torch.where((labels >= start) & (labels < stop), labels - start, -1)

    def own(self, labels: Tensor, n_labels: int) -> Tensor:
        """Return those of each document's labels (B, M) that are here, (B, N), −1 for none.

        N is the most that a document has here, so that little is computed in vain.
        """
        here = torch.where(self.local(labels, n_labels) >= 0, labels, -1)
        most = int((here >= 0).sum(1).max()) if len(here) else 0
        return here.sort(1, descending=True).values[:, : max(1, most)]

    def shared(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return tensors whose gradients are summed over the processes."""
        apply: Callable[[Tensor], Tensor] = _SummedGradient.apply
        return tuple(apply(t) if isinstance(t, Tensor) and t.requires_grad else t for t in tensors)

    def total(self, loss: Tensor) -> Tensor:
        """Return a loss summed over the processes; each process keeps the gradient of its part."""
        apply: Callable[[Tensor], Tensor] = _SummedValue.apply
        return apply(loss)

    def sum(self, values: Tensor) -> Tensor:
        """Return values, without gradients, summed over the processes."""
        return reduced(values)

    def merged(self, indices: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the best k labels of all processes; ties by the smaller label id."""
        width = torch.tensor(indices.shape[1], device=indices.device)
        pad = int(self.largest(width)) - indices.shape[1]  # slices may differ in size
        indices = nn.functional.pad(indices, (0, pad), value=-1).contiguous()
        scores = nn.functional.pad(scores.float(), (0, pad)).contiguous()
        best = RunningTopK(k)
        for part, values in zip(self._gathered(indices), self._gathered(scores), strict=True):
            best.update(values, part)
        found = best.result()
        return found.indices, found.scores

    def largest(self, value: Tensor) -> Tensor:
        """Return the largest value of all processes."""
        return reduced(value, distributed.ReduceOp.MAX)

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.ranks)]
        distributed.all_gather(parts, tensor)
        return parts


def reduced(values: Tensor, *how: Any) -> Tensor:
    """Return values, without gradients, summed over the processes, or reduced in another way."""
    found = values.detach().contiguous().clone()
    distributed.all_reduce(found, *how)
    return found


class _SummedGradient(torch.autograd.Function):
    """The identity, whose gradient is summed over the processes."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return reduced(grads[0])


class _SummedValue(torch.autograd.Function):
    """The sum over the processes; the gradient of each process's value is its own."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return reduced(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def join_labels(system: System, rank: int, ranks: int) -> None:
    """Gather the label tensors in the first process, which then has the whole system."""
    if ranks == 1:
        return
    for module, name, tensor in list(_label_tensors(system)):
        joined = _joined(tensor, rank, ranks)
        if joined is not None:
            _replace(module, name, joined)
    if rank == 0:
        system.use_slice(EVERY_LABEL)


def label_tensor_names(system: System) -> set[str]:
    """Return the names of the sharded tensors in the system's state."""
    prefixes = {id(module): prefix for prefix, module in system.named_modules()}
    found = ((prefixes[id(module)], name) for module, name, _ in _label_tensors(system))
    return {f"{prefix}.{name}" if prefix else name for prefix, name in found}


def _label_tensors(system: System) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for part in system.label_parts():
        for name in part.names:
            if (tensor := getattr(part.module, name)) is not None:
                yield part.module, name, tensor


def _replace(module: nn.Module, name: str, tensor: Tensor) -> None:
    before = getattr(module, name)
    if isinstance(before, nn.Parameter):
        tensor = nn.Parameter(tensor.detach(), requires_grad=before.requires_grad)
    setattr(module, name, tensor)


def _joined(tensor: Tensor, rank: int, ranks: int) -> Tensor | None:
    """Return the rows of all processes in the first one, None in the others."""
    device = _device()
    own = tensor.detach().to(device)
    sizes = [torch.zeros((), dtype=torch.long, device=device) for _ in range(ranks)]
    distributed.all_gather(sizes, torch.tensor(len(own), device=device))
    most = int(max(sizes))  # numbers of rows may differ by one
    padded = own.new_zeros((most, *own.shape[1:]))
    padded[: len(own)] = own
    flags = padded.dtype is torch.bool
    padded = padded.to(torch.uint8) if flags else padded
    parts = [torch.empty_like(padded) for _ in range(ranks)] if rank == 0 else None
    distributed.gather(padded, parts, dst=0)
    if parts is None:
        return None
    rows = torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)])
    return (rows.bool() if flags else rows).to(tensor.device)


def _device() -> torch.device:
    """Return the device that the process group sends from."""
    gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
