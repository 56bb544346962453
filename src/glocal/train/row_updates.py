"""Label matrices in bf16 or fp8, updated chunk by chunk as soon as their gradient is known.

For millions of labels the label matrices, their gradients and AdamW's two moments (16 bytes a
parameter) are most of the memory, and reading them most of the time, of a training step. Here

- a weight is bf16 or fp8 (e4m3) and rounded at random, up or down with the probability that makes
  its expectation exact, so that steps much smaller than its precision still count;
- there is no momentum, and the second moment is one number for each label: the mean square of its
  row's gradient, averaged as AdamW does it. A row moves by `rate · g / √(mean square)`;
- the gradient of a chunk of rows is used at once and never stored.

That is two bytes a parameter, or one. Steps are independent of the gradient's scale, so they need
neither clipping nor the factor of the loss; rows whose gradient is not finite stay as they are.
"""
# ruff: noqa: ANN001, ANN202 (a kernel's arguments have the compiler's types)

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glocal.encoders.triton_jit import jit, tl, triton
from glocal.errors import ConfigError
from glocal.losses.chunked import FP8
from glocal.systems.system import System

_DECAY = 0.999  # of the mean squares
_EPSILON = 1e-8
_LARGEST = tl.constexpr(448.0) if triton is not None else 448.0  # of fp8
_TYPES = {"bf16": torch.bfloat16, "fp8": FP8}


def round_label_matrices(system: System, precision: str = "bf16") -> None:
    """Turn the label matrices of a system into bf16 or fp8."""
    matrices = system.label_matrices()
    if not matrices:
        raise ConfigError(
            f"'train.label_precision' = {precision} needs experts that score every label in "
            "training, and this run has none; set candidates.mode=full, or "
            "train.label_precision=fp32"
        )
    for parameter in matrices:
        parameter.data = parameter.data.to(_TYPES[precision])


def widen_label_matrices(system: System) -> None:
    """Turn label matrices in fp8 into bf16, which has all their values."""
    for parameter in system.label_matrices():
        if parameter.dtype == FP8:
            parameter.data = parameter.data.bfloat16()


class RowUpdates:
    """The steps of all label matrices in bf16 or fp8.

    Args:
        system: With matrices from `round_label_matrices`; it hands over their gradients.
        optimizer: Holds the rates, and the mean squares next to the other parameters' moments.
    """

    def __init__(self, system: System, optimizer: torch.optim.Optimizer) -> None:
        self.state = optimizer.state
        self.groups: dict[nn.Parameter, dict[str, Any]] = {}
        self.rates: dict[nn.Parameter, Tensor] = {}
        matrices = {id(p) for p in system.label_matrices() if p.dtype in _TYPES.values()}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in matrices:
                    self._add(parameter, group)
        system.row_updates = {id(p): functools.partial(self._update, p) for p in self.groups}

    def _add(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        self.groups[parameter] = group
        zeros = functools.partial(torch.zeros, device=parameter.device)
        self.rates[parameter] = zeros(())
        self.state[parameter] = {"mean_square": zeros(len(parameter)), "step": zeros(())}

    def start_step(self) -> None:
        """Take over the rates; before the forward pass of every step."""
        for parameter in self.groups:
            self.state[parameter]["step"] += 1
        self._set_rates()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no gradient change anything inside the block."""
        for rate in self.rates.values():
            rate.zero_()
        try:
            yield
        finally:
            self._set_rates()

    def _set_rates(self) -> None:
        for parameter, group in self.groups.items():
            correction = (1.0 - _DECAY ** self.state[parameter]["step"]).sqrt()
            self.rates[parameter].copy_(correction * group["lr"])

    @torch.no_grad()
    def _update(self, parameter: nn.Parameter, chunk: slice, gradient: Tensor) -> None:
        rate, state = self.rates[parameter], self.state[parameter]
        rows, squares = parameter.data[chunk], state["mean_square"][chunk]
        if triton is not None and rows.is_cuda:
            width = rows.shape[1]
            block = triton.next_power_of_2(width)
            _update_kernel[(len(rows),)](
                rows, gradient.contiguous(), squares, rate, state["step"], chunk.start, width,
                DECAY=_DECAY, EPSILON=_EPSILON, W=block, num_warps=max(1, min(8, block // 256)),
            )  # fmt: skip
        else:
            update_rows(rows, gradient, squares, rate)


def update_rows(rows: Tensor, gradient: Tensor, squares: Tensor, rate: Tensor) -> None:
    """Move rows (C, W) against their gradient, in place; what the kernel does, in PyTorch."""
    gradient = gradient.float()
    square = gradient.square().mean(1)
    usable = square.isfinite() & (rate > 0)
    squares.copy_(torch.where(usable, torch.lerp(square, squares, _DECAY), squares))
    step = gradient * (rate / (squares.sqrt() + _EPSILON))[:, None]
    moved = torch.where(usable[:, None], rows.float() - step, rows.float())
    rows.copy_(_round_at_random(moved, rows.dtype))


def _round_at_random(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round fp32 to bf16 or fp8, up or down such that the expectation is exact."""
    bits = values.view(torch.int32)
    if dtype == torch.bfloat16:
        noise = torch.randint_like(bits, 1 << 16)
        return ((bits + noise) & -65536).view(torch.float32).bfloat16()
    exponent = ((bits >> 23) & 0xFF).clamp(min=121) - 130  # of the last of three digits
    unit = ((exponent + 127) << 23).view(torch.float32)
    rounded = torch.floor(values / unit + torch.rand_like(values)) * unit
    return rounded.clamp(-448.0, 448.0).to(dtype)


@jit
def _update_kernel(  # type: ignore[no-untyped-def]
    rows, gradient, squares, rate, step, first_row, width,
    DECAY: tl.constexpr, EPSILON: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """One row; the noise is a hash of step, row and column."""
    row, columns = tl.program_id(0), tl.arange(0, W)
    inside = columns < width
    place = row.to(tl.int64) * width + columns
    g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    square = tl.sum(g * g, 0) / width
    speed = tl.load(rate)
    if (square < float("inf")) & (speed > 0):
        mean = tl.load(squares + row) * DECAY + square * (1.0 - DECAY)
        tl.store(squares + row, mean)
        weight = tl.load(rows + place, mask=inside, other=0.0).to(tl.float32)
        weight -= g * (speed / (tl.sqrt(mean) + EPSILON))
        seed = tl.load(step).to(tl.uint32) * 0x9E3779B1 + (first_row + row).to(tl.uint32)
        noise = (seed * 0x85EBCA77) ^ (columns.to(tl.uint32) * 0xC2B2AE3D)
        noise = (noise ^ (noise >> 16)) * 0x7FEB352D
        noise = (noise ^ (noise >> 15)) * 0x846CA68B
        noise = (noise ^ (noise >> 16)) & 0xFFFF
        bits = weight.to(tl.uint32, bitcast=True)
        if rows.dtype.element_ty == tl.bfloat16:
            rounded = ((bits + noise) & 0xFFFF0000).to(tl.float32, bitcast=True)
        else:
            digit = tl.maximum((bits >> 23) & 0xFF, 121) - 3  # exponent of the last of three digits
            unit = (digit << 23).to(tl.float32, bitcast=True)
            rounded = tl.floor(weight / unit + noise.to(tl.float32) / 65536.0) * unit
            rounded = tl.minimum(tl.maximum(rounded, -_LARGEST), _LARGEST)
        tl.store(rows + place, rounded.to(rows.dtype.element_ty), mask=inside)
