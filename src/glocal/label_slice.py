"""The labels that a process scores: all of them, or a slice where a run shards them.

Every process of a sharded run reads every document of a step and scores it on its own slice of the
labels. A system needs some things of the others, which are the methods here; for a process that has
all labels they do nothing. `cluster/label_shards.py` has the slice of a process group.

- The gradients of whatever a score depends on besides label parameters (`shared`) are summed over
  the processes: then everything below, the encoder included, gets its exact gradient in each.
- Losses (`total`) and other sums over labels (`sum`) are summed over the processes.
- The best labels of each process are merged (`merged`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class LabelPart:
    """Tensors of a module with the labels on their first axis.

    Attributes:
        module: The module.
        names: Names of its parameters and buffers; each may be None.
    """

    module: nn.Module
    names: tuple[str, ...]


class LabelSlice:
    """All labels, in one process.

    Attributes:
        sharded: Whether other processes have other labels.
        first: Whether this process counts what belongs to no label.
    """

    sharded: bool = False
    first: bool = True

    def bounds(self, n_labels: int) -> tuple[int, int]:
        """Return the first label of the slice and the one after its last."""
        return 0, n_labels

    def draw(self, n_labels: int, width: int, std: float) -> Tensor:
        """Return the slice's rows (n, width) of a matrix drawn from N(0, std) for all labels."""
        from torch import empty

        return empty(n_labels, width).normal_(0.0, std)

    def local(self, labels: Tensor, n_labels: int) -> Tensor:
        """Return label ids counted within the slice; −1 for padding and labels outside it."""
        return labels

    def own(self, labels: Tensor, n_labels: int) -> Tensor:
        """Return those of each document's labels (B, M) that are here, (B, N), −1 for none."""
        return labels

    def shared(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return tensors whose gradients are summed over the processes."""
        return tuple(tensors)

    def total(self, loss: Tensor) -> Tensor:
        """Return a loss summed over the processes."""
        return loss

    def sum(self, values: Tensor) -> Tensor:
        """Return values, without gradients, summed over the processes."""
        return values

    def largest(self, value: Tensor) -> Tensor:
        """Return the largest value of all processes."""
        return value

    def merged(self, indices: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the best k labels of all processes, from those of each; ids are global."""
        return indices, scores


EVERY_LABEL = LabelSlice()
