"""Linear layers and layer norms whose parameter gradients take fewer passes on a GPU.

Bias gradients and layer norms' weight gradients are sums over all tokens of a batch. PyTorch's
kernels for them reach a fraction of the memory's speed, and take a tenth of a training step of a
base-size encoder. The kernels here sum tiles of tokens in fp32, then the tiles. They are used in
bf16 on CUDA with gradients; anywhere else the layers are PyTorch's own, as are names and weights.
"""
# ruff: noqa: ANN001, ANN202, PLR0917 (a kernel's arguments have the compiler's types)

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.encoders.triton_jit import jit, tl, triton

_TILE = (32, 128)  # tokens, features
_ROWS = 256  # tokens a program sums


def use_lean_gradients(model: nn.Module) -> None:
    """Let the linear layers and layer norms of a model compute their gradients this way."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = _LeanLinear
        elif type(module) is nn.LayerNorm:
            module.__class__ = _LeanLayerNorm


def mix_in(module: nn.Module, mixin: Any) -> None:
    """Give a module the methods of another class before its own; names and weights stay."""
    kind: Any = type(module)
    module.__class__ = _mixed(mixin, kind)


@functools.cache
def _mixed(mixin: Any, kind: Any) -> Any:
    return type(f"{mixin.__name__}{kind.__name__}", (mixin, kind), {})


def cast_together(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Cast many tensors in a few launches; so are their gradients."""
    apply: Callable[..., tuple[Tensor, ...]] = _CastTogether.apply
    return list(apply(dtype, *tensors))


def runs_kernels(states: Tensor, weight: Tensor | None) -> bool:
    """Whether kernels of our own are used: in bf16, on CUDA, with gradients."""
    half = weight is not None and states.dtype is weight.dtype is torch.bfloat16
    return half and triton is not None and states.is_cuda and torch.is_grad_enabled()


class _LeanLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        """Return `x Wᵀ + b`."""
        if self.bias is None or not runs_kernels(input, self.weight):
            return super().forward(input)
        apply: Callable[..., Tensor] = _Linear.apply
        return apply(input, self.weight, self.bias)


class _LeanLayerNorm(nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        """Return the normed states, scaled and shifted."""
        one_axis = len(self.normalized_shape) == 1 and self.bias is not None
        if not one_axis or not runs_kernels(input, self.weight):
            return super().forward(input)
        apply: Callable[..., Tensor] = _LayerNorm.apply
        return apply(input, self.weight, self.bias, self.eps)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return functional.linear(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        needs_states, needs_weight, needs_bias = ctx.needs_input_grad
        grad = grad_outputs[0].flatten(0, -2).contiguous()
        return (
            (grad @ weight).view(states.shape) if needs_states else None,
            grad.T @ states.flatten(0, -2) if needs_weight else None,
            sum_tokens(grad)[0].to(weight.dtype) if needs_bias else None,
        )


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        normed, mean, scale = torch.native_layer_norm(states, weight.shape, weight, bias, eps)
        ctx.save_for_backward(states, weight, bias, mean, scale)
        return normed

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, mean, scale = ctx.saved_tensors
        grad = grad_outputs[0].contiguous()
        backward: Callable[..., Any] = torch.ops.aten.native_layer_norm_backward
        shape, wanted = list(weight.shape), [True, False, False]
        d_states = backward(grad, states, shape, mean, scale, weight, bias, wanted)[0]
        width = len(weight)
        d_bias, d_weight = sum_tokens(
            grad.view(-1, width), states.reshape(-1, width), mean.flatten(), scale.flatten()
        )
        return d_states, d_weight.to(weight.dtype), d_bias.to(weight.dtype), None


class _CastTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # weights that go unused have no gradient
        ctx.types = [t.dtype for t in tensors]
        cast = [torch.empty_like(t, dtype=dtype) for t in tensors]
        torch._foreach_copy_(cast, list(tensors))
        return tuple(cast)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        there = [(i, g) for i, g in enumerate(grad_outputs) if g is not None]
        found: list[Tensor | None] = [None] * len(grad_outputs)
        cast = [torch.empty_like(g, dtype=ctx.types[i]) for i, g in there]
        torch._foreach_copy_(cast, [g for _, g in there])
        for (i, _), gradient in zip(there, cast, strict=True):
            found[i] = gradient
        return (None, *found)


def sum_tokens(
    grad: Tensor,
    states: Tensor | None = None,
    mean: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Sum a gradient (N, H) over its tokens; and its product with the normed states, if given."""
    tokens, width = grad.shape
    parts = triton.cdiv(tokens, _ROWS)
    kinds = 1 if states is None else 2
    sums = torch.empty((kinds, parts, width), dtype=torch.float32, device=grad.device)
    _sum_kernel[(triton.cdiv(width, _TILE[1]), parts)](
        grad, states, mean, scale, sums, tokens, width, parts,
        ROWS=_ROWS, M=_TILE[0], N=_TILE[1], NORMED=states is not None, num_warps=4,
    )  # fmt: skip
    return sums.sum(1)


@jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    grad, states, mean, scale, sums, tokens, width, parts,
    ROWS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """ROWS tokens of N features, M tokens at a time."""
    columns = tl.program_id(0) * N + tl.arange(0, N)
    part, inside = tl.program_id(1), columns < width
    total = tl.zeros((M, N), tl.float32)
    product = tl.zeros((M, N), tl.float32)
    for start in range(0, ROWS, M):
        rows = part * ROWS + start + tl.arange(0, M)
        at = rows.to(tl.int64)[:, None] * width + columns[None, :]
        there = (rows < tokens)[:, None] & inside[None, :]
        g = tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
        total += g
        if NORMED:
            x = tl.load(states + at, mask=there, other=0.0).to(tl.float32)
            centre = tl.load(mean + rows, mask=rows < tokens, other=0.0)
            factor = tl.load(scale + rows, mask=rows < tokens, other=0.0)
            product += g * (x - centre[:, None]) * factor[:, None]
    place = part * width + columns
    tl.store(sums + place, tl.sum(total, 0), mask=inside)
    if NORMED:
        tl.store(sums + parts * width + place, tl.sum(product, 0), mask=inside)
