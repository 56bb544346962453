"""Training steps recorded once per batch shape as CUDA graphs and replayed.

A small encoder's step is hundreds of short kernels, and launching them one by one from Python takes
longer than computing them. A recorded forward and backward pass is launched as one. Used on one GPU
without gradient accumulation; a shape is recorded when it occurs for the second time, and rare
shapes run as usual.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal.data.batches import Batch
from glocal.systems.system import System, TrainingPosition
from glocal.train.row_updates import RowUpdates

logger = logging.getLogger(__name__)

_MOST = 48  # graphs kept; each holds a set of gradients


@dataclass
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor
    gradients: list[Tensor | None]


class StepGraphs:
    """Forward and backward passes of a system, by batch shape.

    Args:
        system: The system, on a CUDA device.
        dtype: Type used by autocast; None for fp32.
        row_updates: Updates of label rows, which pause while a step is recorded.
    """

    def __init__(
        self, system: System, dtype: torch.dtype | None, row_updates: RowUpdates | None = None
    ) -> None:
        self.system, self.dtype, self.row_updates = system, dtype, row_updates
        self.parameters = [p for p in system.parameters() if p.requires_grad]
        self.recorded: dict[Hashable, _Recorded] = {}
        self.met: Counter[Hashable] = Counter()
        self.pool = torch.cuda.graph_pool_handle()
        self.device = self.parameters[0].device
        self.failed = False

    def step(self, batch: Batch, position: TrainingPosition) -> Tensor | None:
        """Return the loss, with gradients in place; None when this shape is not recorded.

        Args:
            batch: The batch, on the CPU in pinned memory or on the device.
            position: The position of the run.
        """
        if self.failed or not self.system.supports_cuda_graphs:
            return None
        # Without a mask, PyTorch takes unfused attention while recording.
        batch = replace(batch, padded=True)
        shapes = tuple(tuple(t.shape) for t in batch.tensors())
        key = (shapes, batch.denominator, self.system.phase(position))
        if key not in self.recorded:
            self.met[key] += 1
            if self.met[key] < 2 or len(self.recorded) >= _MOST:
                return None
            try:
                self.recorded[key] = self._record(batch.to(self.device), position)
            except RuntimeError as error:  # an encoder that waits for the device cannot be recorded
                logger.warning("steps are not recorded as CUDA graphs: %s", error)
                self.failed = True
                self._drop_gradients()
                return None
        recorded = self.recorded[key]
        recorded.batch.copy_(batch)
        recorded.graph.replay()
        for parameter, gradient in zip(self.parameters, recorded.gradients, strict=True):
            parameter.grad = gradient
        return recorded.loss

    def _record(self, batch: Batch, position: TrainingPosition) -> _Recorded:
        updates = self.row_updates
        with contextlib.nullcontext() if updates is None else updates.paused():
            return self._record_pass(batch.clone(), position)

    def _record_pass(self, batch: Batch, position: TrainingPosition) -> _Recorded:
        random = torch.cuda.get_rng_state(self.device)
        side: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):  # libraries set themselves up before the recording
            self._pass(batch, position)
        torch.cuda.current_stream(self.device).wait_stream(side)
        self._drop_gradients()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            loss = self._pass(batch, position)
        gradients = [p.grad for p in self.parameters]
        self._drop_gradients()
        # Recording must not shift the random numbers of the steps that follow.
        torch.cuda.set_rng_state(random, self.device)
        return _Recorded(graph, batch, loss, gradients)

    def _pass(self, batch: Batch, position: TrainingPosition) -> Tensor:
        dtype = self.dtype or torch.bfloat16
        enabled = self.dtype is not None
        with torch.autocast("cuda", dtype=dtype, enabled=enabled, cache_enabled=False):
            loss = self.system.training_step(batch, position)
        torch.autograd.backward(loss)
        return loss.detach()

    def _drop_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
