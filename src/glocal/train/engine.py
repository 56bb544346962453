"""The one file that knows accelerate: devices, precision, processes.

The loop above it is the same on a CPU, one GPU, several GPUs and several machines; start it with
`torchrun` for more than one process.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, gather_object
from torch import Tensor, nn

from glocal.companions.sparse.cluster_solvers import ProcessSolvers
from glocal.errors import ConfigError
from glocal.ranking.document_ranker import check_device
from glocal.systems.system import System
from glocal.train.checkpoint import seed_everything
from glocal.train.local_engine import LocalEngine


class Engine(LocalEngine):
    """Any device, precision and number of processes.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `bf16`, `fp16` or `fp32`.
    """

    def __init__(self, device: str = "auto", precision: str = "auto") -> None:
        check_device(device)
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigError(f"the device is {device}, but PyTorch sees no GPU; use cpu or auto")
        if device.startswith("cuda:"):
            torch.cuda.set_device(torch.device(device))
        self.requested = device, precision
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        self.precision = self._choose_precision(precision, on_cpu=on_cpu)
        mixed = {"fp32": "no"}.get(self.precision, self.precision)
        # Some encoders have weights that are not used here (XLNet's mask embedding); several
        # processes would wait for their gradients for ever. Buffers are constant.
        ddp = DistributedDataParallelKwargs(broadcast_buffers=False, find_unused_parameters=True)
        # accelerate keeps one state per Python process, which an earlier run of another precision
        # or device has set; the processes of a distributed run stay connected.
        alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
        AcceleratorState._reset_state(reset_partial_state=alone)
        self.accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[ddp])
        self.device: torch.device = self.accelerator.device
        self.rank = self.accelerator.process_index
        self.world = self.accelerator.num_processes
        self.is_main = self.accelerator.is_main_process
        if on_cpu and self.world == 1 and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(os.cpu_count() or 1)

    @property
    def device_type(self) -> str:
        """The kind of device: `cpu` or `cuda`."""
        return self.device.type

    @property
    def solvers(self) -> ProcessSolvers | None:
        """The processes that fit a model of words together; None for a single one."""
        state = self.accelerator
        if state.num_processes == 1:
            return None
        return ProcessSolvers(state.process_index, state.num_processes, gather_object, self.wait)

    def fresh(self) -> Engine:
        """Return a new engine of the same kind, without state such as fp16's scale."""
        return Engine(*self.requested)

    @staticmethod
    def _choose_precision(precision: str, *, on_cpu: bool) -> str:
        if precision != "auto":
            return "fp32" if on_cpu and precision == "fp16" else precision
        return "bf16" if not on_cpu and torch.cuda.is_bf16_supported() else "fp32"

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The type an encoder can be run in throughout; None to use the type of its weights."""
        on_gpu = self.device.type == "cuda"
        return torch.bfloat16 if on_gpu and self.precision == "bf16" else None

    def wrap(
        self, system: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Move to the device, and make data-parallel where there are several processes."""
        wrapped: tuple[nn.Module, torch.optim.Optimizer] = self.accelerator.prepare(
            system, optimizer
        )
        return wrapped

    def begin(self, system: System) -> None:
        """Prepare a system for training, on the CPU and before there is an optimizer."""

    def whole(self, system: System) -> contextlib.AbstractContextManager[None]:
        """Return a context within which the system has all its weights of what is not a label."""
        return contextlib.nullcontext()

    def end(self, system: System) -> None:
        """Undo what `begin` has done; the system gets its final weights next."""

    def local_part(self, parameter: Tensor) -> Tensor:
        """Return the part of a parameter that this process has; it shares the memory."""
        return parameter.detach()

    def replace_part(self, parameter: nn.Parameter, weight: Tensor) -> Tensor:
        """Set the part of a parameter that this process has; return what it was before."""
        before, parameter.data = parameter.data, weight
        return before

    def all_finite(self, parameters: list[nn.Parameter]) -> bool:
        """Return whether all weights are finite numbers."""
        return bool(torch.stack([p.detach().isfinite().all() for p in parameters]).all())

    @property
    def saves(self) -> bool:
        """Whether this process writes a part of checkpoints."""
        return self.is_main

    def any_process(self, flag: bool, *, step: int) -> bool:
        """Return whether a flag is set in any process; processes ask each other every few steps."""
        if self.accelerator.num_processes == 1:
            return flag
        return step % 10 == 0 and any(gather_object([flag]))

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with the chosen mixed precision."""
        context: contextlib.AbstractContextManager[None] = self.accelerator.autocast()
        return context

    @contextlib.contextmanager
    def accumulate(self, model: nn.Module, *, last: bool) -> Iterator[None]:
        """Exchange gradients between processes only at the last part of a step."""
        with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
            yield

    def backward(self, loss: Tensor) -> None:
        """Compute gradients, scaled where fp16 needs it."""
        self.accelerator.backward(loss)

    def clip(
        self,
        parameters: list[nn.Parameter],
        max_norm: float,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        """Clip the gradients to a norm; where it is not finite, make the optimizer skip the step.

        One overflow in a backward pass would otherwise ruin all weights. The flag stays on the
        device, so that nothing waits for it; with fp16 the loss scaling does the same.

        Returns:
            1 where the step is skipped, else 0, as a tensor on the device.
        """
        norm = self.accelerator.clip_grad_norm_(parameters, max_norm or math.inf)
        if self.accelerator.scaler is not None:
            return torch.zeros((), device=self.device)
        unusable: Tensor = (~norm.isfinite()).float().to(self.device)
        fused: Any = getattr(optimizer, "optimizer", optimizer)
        fused.found_inf, fused.grad_scale = unusable, None
        return unusable

    def scaler_state(self) -> dict[str, float]:
        """Return the state of fp16's loss scaling; empty in other precisions."""
        scaler = self.accelerator.scaler
        return {} if scaler is None else dict(scaler.state_dict())

    def restore_scaler(self, state: dict[str, float]) -> None:
        """Restore the loss scaling of a resumed run."""
        if self.accelerator.scaler is not None and state:
            self.accelerator.scaler.load_state_dict(state)

    def gather(self, items: list[Any]) -> list[Any]:
        """Return the items of all processes, in the order of the processes."""
        return list(gather_object(items)) if self.world > 1 else items

    def mean(self, value: float) -> float:
        """Return the mean over processes."""
        if self.world == 1:
            return value
        reduced: Tensor = self.accelerator.reduce(torch.tensor(value, device=self.device), "mean")
        return float(reduced)

    def seed(self, seed: int) -> None:
        """Seed every random generator, the same in every process."""
        seed_everything(seed, 0)

    def wait(self) -> None:
        """Wait until every process is here."""
        self.accelerator.wait_for_everyone()

    def describe(self) -> str:
        """Return one line: device, precision, processes, threads."""
        if self.device.type == "cuda":
            place = torch.cuda.get_device_name(self.device)
        else:
            place = f"CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"
        many = f", {self.world} processes" if self.world > 1 else ""
        return f"{place}, {self.precision}{many}"
