"""Dropout, residual and layer norm of a transformer's layer in one kernel each way, on a GPU.

`norm(dropout(dense(x)) + residual)` ends both halves of a layer of BERT and its kin. PyTorch takes
three passes forward and four backward. Here the dropout mask is a hash of a number drawn once per
call, computed again backward and never stored. Used in bf16 on CUDA with gradients; anywhere else
the modules are transformers' own.
"""
# ruff: noqa: ANN001, ANN202, PLR0917 (a kernel's arguments have the compiler's types)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glocal.encoders.lean_gradients import mix_in, runs_kernels
from glocal.encoders.triton_jit import jit, tl, triton

_WIDEST = 2048  # features of one row, all in registers
_ROWS = 32  # tokens a program of the backward pass works through
_ENDS = ("SelfOutput", "Output")  # of the names of such modules
_FAMILIES = ("Bert", "Roberta", "XLMRoberta", "Electra", "MPNet")


def fuse_residual_norms(model: nn.Module) -> None:
    """Let the modules of a model that end a half of a layer use the kernels; names stay."""
    known = {family + end for family in _FAMILIES for end in _ENDS}
    for module in model.modules():
        if type(module).__name__ in known:
            mix_in(module, _ResidualNorm)


class _ResidualNorm(nn.Module):
    dense: nn.Linear
    dropout: nn.Dropout
    LayerNorm: nn.LayerNorm

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Return `norm(dropout(dense(x)) + residual)`."""
        norm = self.LayerNorm
        narrow = norm.normalized_shape[-1] <= _WIDEST and norm.bias is not None
        if not narrow or not runs_kernels(input_tensor, norm.weight):
            result: Tensor = super().forward(hidden_states, input_tensor)
            return result
        states = self.dense(hidden_states)
        rate = self.dropout.p if self.training else 0.0
        apply: Callable[..., Tensor] = _DropoutAddNorm.apply
        return apply(states, input_tensor, norm.weight, norm.bias, norm.eps, rate)


class _DropoutAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        residual: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        rate: float,
    ) -> Tensor:
        states, residual = states.contiguous(), residual.contiguous()
        seed = torch.randint(1 << 31, (1,), device=states.device, dtype=torch.int32)
        total, normed = torch.empty_like(states), torch.empty_like(states)
        width = len(weight)
        tokens = states.numel() // width
        mean, scale = states.new_empty((2, tokens), dtype=torch.float32)
        _norm_kernel[(tokens,)](
            states, residual, weight, bias, seed, total, normed, mean, scale, width, eps, rate,
            W=triton.next_power_of_2(width), num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, mean, scale)
        ctx.rate = rate
        return normed

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        total, weight, seed, mean, scale = ctx.saved_tensors
        grad = grad_outputs[0].contiguous()
        d_states, d_residual = torch.empty_like(grad), torch.empty_like(grad)
        width, tokens = len(weight), len(mean)
        parts = triton.cdiv(tokens, _ROWS)
        sums = torch.empty((2, parts, width), dtype=torch.float32, device=grad.device)
        _norm_gradients_kernel[(parts,)](
            grad, total, weight, seed, mean, scale, d_states, d_residual, sums,
            tokens, width, parts, ctx.rate,
            ROWS=_ROWS, W=triton.next_power_of_2(width), num_warps=4,
        )  # fmt: skip
        d_weight, d_bias = sums.sum(1).to(weight.dtype)
        return d_states, d_residual, d_weight, d_bias, None, None


@jit
def _keeps(seed, row, columns, width, rate):  # type: ignore[no-untyped-def]
    """Return 1 / (1 − rate) where dropout keeps a unit, else 0."""
    noise = (row * width + columns).to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    noise = (noise ^ (noise >> 16)) * 0x7FEB352D
    noise = (noise ^ (noise >> 15)) * 0x846CA68B
    noise = (noise ^ (noise >> 16)) >> 8  # 24 bits, which fp32 holds exactly
    return tl.where(noise.to(tl.float32) >= rate * 16777216.0, 1.0 / (1.0 - rate), 0.0)


@jit
def _norm_kernel(  # type: ignore[no-untyped-def]
    states, residual, weight, bias, seed, total, normed, mean, scale, width, eps, rate,
    W: tl.constexpr,
):  # fmt: skip
    """One token."""
    row, columns = tl.program_id(0), tl.arange(0, W)
    inside = columns < width
    at = row.to(tl.int64) * width + columns
    x = tl.load(states + at, mask=inside, other=0.0).to(tl.float32)
    x *= _keeps(tl.load(seed), row, columns, width, rate)
    x += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    rounded = x.to(total.dtype.element_ty)
    tl.store(total + at, rounded, mask=inside)
    x = rounded.to(tl.float32)
    centre = tl.sum(x, 0) / width
    x = tl.where(inside, x - centre, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + eps)
    tl.store(mean + row, centre)
    tl.store(scale + row, factor)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + at, (x * factor * w + b).to(total.dtype.element_ty), mask=inside)


@jit
def _norm_gradients_kernel(  # type: ignore[no-untyped-def]
    grad, total, weight, seed, mean, scale, d_states, d_residual, sums,
    tokens, width, parts, rate,
    ROWS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """ROWS tokens, one after the other; their sums for weight and bias stay in registers."""
    part, columns = tl.program_id(0), tl.arange(0, W)
    inside = columns < width
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    start = tl.load(seed)
    d_weight = tl.zeros((W,), tl.float32)
    d_bias = tl.zeros((W,), tl.float32)
    for row in range(part * ROWS, tl.minimum(part * ROWS + ROWS, tokens)):
        at = tl.cast(row, tl.int64) * width + columns
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(total + at, mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(scale + row)
        x = tl.where(inside, (x - tl.load(mean + row)) * factor, 0.0)
        d_weight += g * x
        d_bias += g
        g *= w
        slope = (g - tl.sum(g, 0) / width - x * (tl.sum(g * x, 0) / width)) * factor
        tl.store(d_residual + at, slope.to(total.dtype.element_ty), mask=inside)
        slope *= _keeps(start, row, columns, width, rate)
        tl.store(d_states + at, slope.to(total.dtype.element_ty), mask=inside)
    place = part * width + columns
    tl.store(sums + place, d_weight, mask=inside)
    tl.store(sums + parts * width + place, d_bias, mask=inside)
