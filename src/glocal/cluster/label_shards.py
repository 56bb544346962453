"""Label parameters sharded over the processes of a group: each has a slice of the labels.

- `shard_labels` cuts the label tensors of a system to this process's slice; `join_labels` gathers
  them again. In between, memory of label parameters, gradients and moments is one slice's.
- `GroupSlice` is the slice as a system sees it (`label_slice.py`). Losses, gradients and the best
  labels are those of a single process, up to rounding.
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
        return slice_bounds(n_labels, self.rank, self.ranks)

    def local(self, labels: Tensor, n_labels: int) -> Tensor:
        """Return label ids counted within the slice; −1 for padding and labels outside it."""
        start, stop = self.bounds(n_labels)
        return torch.where((labels >= start) & (labels < stop), labels - start, -1)

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
        summed = values.detach().clone()
        distributed.all_reduce(summed)
        return summed

    def merged(self, indices: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the best k labels of all processes; ties by the smaller label id."""
        pad = self._largest(indices.shape[1]) - indices.shape[1]  # slices may differ by a label
        indices = nn.functional.pad(indices, (0, pad), value=-1).contiguous()
        scores = nn.functional.pad(scores.float(), (0, pad)).contiguous()
        best = RunningTopK(k)
        for part, values in zip(self._gathered(indices), self._gathered(scores), strict=True):
            best.update(values, part)
        found = best.result()
        return found.indices, found.scores

    def _largest(self, number: int) -> int:
        value = torch.tensor(number, device=_device())
        distributed.all_reduce(value, distributed.ReduceOp.MAX)
        return int(value)

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.ranks)]
        distributed.all_gather(parts, tensor)
        return parts


class _SummedGradient(torch.autograd.Function):
    """The identity, whose gradient is summed over the processes."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        summed = grads[0].contiguous().clone()
        distributed.all_reduce(summed)
        return summed


class _SummedValue(torch.autograd.Function):
    """The sum over the processes; the gradient of each process's value is its own."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        summed = value.detach().clone()
        distributed.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def shard_labels(system: System, rank: int, ranks: int) -> None:
    """Cut the label tensors of a system to the slice of a process.

    Raises:
        ConfigError: The system's labels cannot be sharded, or a process would have none.
    """
    tensors = list(_label_tensors(system))
    fewest = min((len(tensor) for _, _, tensor in tensors), default=0)
    if fewest < ranks:
        raise ConfigError(
            f"{fewest} labels cannot be sharded over {ranks} processes; start fewer of them"
        )
    if ranks == 1:
        return
    for module, name, tensor in tensors:
        start, stop = slice_bounds(len(tensor), rank, ranks)
        _replace(module, name, tensor[start:stop].clone())
    system.use_slice(GroupSlice(rank, ranks))


def join_labels(system: System, ranks: int) -> None:
    """Gather the label tensors of all processes, so that each has the whole system."""
    if ranks == 1:
        return
    for module, name, tensor in list(_label_tensors(system)):
        _replace(module, name, _joined(tensor, ranks))
    system.use_slice(EVERY_LABEL)


def label_tensor_names(system: System) -> set[str]:
    """Return the names of the sharded tensors in the system's state."""
    prefixes = {id(module): prefix for prefix, module in system.named_modules()}
    found = set()
    for module, name, _ in _label_tensors(system):
        prefix = prefixes[id(module)]
        found.add(f"{prefix}.{name}" if prefix else name)
    return found


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


def _joined(tensor: Tensor, ranks: int) -> Tensor:
    """Return the rows of all processes, whose numbers of rows may differ by one."""
    device = _device()
    own = tensor.detach().to(device)
    sizes = [torch.zeros((), dtype=torch.long, device=device) for _ in range(ranks)]
    distributed.all_gather(sizes, torch.tensor(len(own), device=device))
    most = int(max(sizes))
    padded = own.new_zeros((most, *own.shape[1:]))
    padded[: len(own)] = own
    flags = padded.dtype is torch.bool
    padded = padded.to(torch.uint8) if flags else padded
    parts = [torch.empty_like(padded) for _ in range(ranks)]
    distributed.all_gather(parts, padded)
    rows = torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)])
    return (rows.bool() if flags else rows).to(tensor.device)


def _device() -> torch.device:
    """Return the device that the process group sends from."""
    gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
