"""Fused label attention for CUDA: `z_bj = w · relu(Σ_i α_bji v_bi)`, in Triton.

- the forward pass is attention with queries shared by all documents; ReLU and dot product happen in
  registers, so that of each (document, label) pair only the logit, the softmax's normaliser and one
  sign bit per hidden unit are written;
- with the signs `g = [o > 0]`, the backward pass never needs `o`: `dα = dz · V(g ∘ w)`,
  `Σ_i α_i dα_i = dz · z`, and with `D = Σ_j dz_j α_j gᵀ_j`, `dV = D ∘ w` and `dw = Σ_bi V ∘ D`;
- it works through the labels in parts. A kernel recomputes α of a part and writes `dz · α` and the
  gradient of the scores, (labels, documents, tokens) in bf16; the gradients of queries and keys are
  then plain matrix products, and a second kernel multiplies `dz · α` by the unpacked signs.

Products per (document, label, token): two forward, five backward. Sums are kept in fp32.
"""
# ruff: noqa: ANN001, ANN202 (a kernel's arguments have the compiler's types)

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal.encoders.triton_jit import jit, tl, triton

if triton is not None:
    from triton.tools.tensor_descriptor import TensorDescriptor

_KEY_WIDTHS, _VALUE_WIDTHS = (32, 64, 128, 256), (128, 256)
_PART_ELEMENTS = 1 << 27  # of each of the two tensors that a part of the backward pass writes
_NEVER = -1e30  # a score that no exponential survives; finite, since ∞ − ∞ is not a number
_LOG2_E = 1.4426950408889634
_SHARED_MEMORY = 232_448  # bytes that the largest tiles need, and H100, H200 and B200 have


@dataclass(frozen=True)
class Tiles:
    """Tile sizes of one kernel, and how it is compiled."""

    labels: int
    tokens: int
    stages: int
    warps: int = 8


_SCORE = Tiles(128, 64, 2)
_GATE = Tiles(64, 256, 4)
_GATE_UNITS = 128  # hidden units of its tiles


@functools.cache
def fits(key_width: int, value_width: int, device: torch.device) -> bool:
    """Whether the kernels run on this device with keys and values of these widths."""
    if triton is None or device.type != "cuda":
        return False
    properties: Any = torch.cuda.get_device_properties(device)
    widths = key_width in _KEY_WIDTHS and value_width in _VALUE_WIDTHS
    return widths and properties.shared_memory_per_block_optin >= _SHARED_MEMORY


def label_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    output: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
) -> Tensor:
    """Logits of all labels, (B, C), in fp32.

    Args:
        query: Label queries, (C, d).
        keys: Of the tokens, (B, T, d).
        values: Of the tokens, (B, T, h).
        output: The vector of the last product, (h,).
        mask: Which tokens are there, (B, T); `None` for all.
        scale: Factor on the scores, 1/τ.
    """
    apply: Callable[..., Tensor] = _LabelAttention.apply
    return apply(query, keys, values, output, mask, scale)


class _LabelAttention(torch.autograd.Function):
    """The two kernels and three matrix products as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        output: Tensor,
        mask: Tensor | None,
        scale: float,
    ) -> Tensor:
        needed = any(ctx.needs_input_grad)
        # In training the last product is of rounded weights, as its gradient is.
        weight = output.to(keys.dtype).float() if needed else output
        rows = query.to(keys.dtype).contiguous()
        keys, values = keys.contiguous(), values.contiguous()
        absent = _absent(mask, keys)
        logits, normaliser, signs = _score(
            rows, keys, values, weight, absent, scale=scale, keep=needed
        )
        if needed:
            ctx.save_for_backward(rows, keys, values, weight, absent, logits, normaliser, signs)
            ctx.scale, ctx.query_type, ctx.output_type = scale, query.dtype, output.dtype
        return logits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, keys, values, weight, absent, logits, normaliser, signs = ctx.saved_tensors
        gradient = gradients[0].float().contiguous()
        n_labels, n_docs, n_tokens = len(rows), len(keys), keys.shape[1]
        part = min(n_labels, max(1, _PART_ELEMENTS // (n_docs * n_tokens)))
        shape = (part, n_docs, n_tokens)
        score_buffer, weight_buffer = (keys.new_empty(shape) for _ in range(2))
        d_query = rows.new_empty(rows.shape, dtype=ctx.query_type)
        d_keys = torch.zeros_like(keys, dtype=torch.float32)
        d_gated = torch.zeros_like(values, dtype=torch.float32)
        saved = (weight, absent, logits, normaliser, signs, gradient)
        with torch.autocast(keys.device.type, enabled=False):
            for start in range(0, n_labels, part):
                count = min(part, n_labels - start)
                d_scores, weights = score_buffer[:count], weight_buffer[:count]
                results = d_scores, weights
                _score_gradients(rows, keys, values, saved, results, start=start, scale=ctx.scale)
                flat = d_scores.view(count, -1)  # (C, B · T)
                _product(flat, keys.flatten(0, 1), d_query[start : start + count])
                d_keys.flatten(0, 1).add_(_product(flat.T, rows[start : start + count]))
                _gate(weights, signs, d_gated, start=start)
        d_output = (values.float() * d_gated).sum((0, 1)).to(ctx.output_type)
        d_values = (d_gated * weight).to(values.dtype)
        return d_query, d_keys.to(keys.dtype), d_values, d_output, None, None


def _absent(mask: Tensor | None, keys: Tensor) -> Tensor | None:
    """Zero for tokens that are there and a hopeless score for others, (B, T)."""
    if mask is None:
        return None
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, _NEVER)


def _product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Matrix product with an fp32 result, also where its factors are bf16."""
    if out is None:
        out = left.new_empty((len(left), right.shape[1]), dtype=torch.float32)
    if out.dtype == left.dtype:
        return torch.mm(left, right, out=out)
    return torch.mm(left, right, out_dtype=out.dtype, out=out)


def _rows(tensor: Tensor, count: int) -> TensorDescriptor:
    """Lets the copy engine load blocks of so many rows, zeros where there are no more."""
    flat = tensor.flatten(0, -2)
    return TensorDescriptor.from_tensor(flat, [count, flat.shape[1]])


def _score(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weight: Tensor,
    absent: Tensor | None,
    *,
    scale: float,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits and normalisers (B, C), and sign bits (B, C, h / 32)."""
    tiles, (n_docs, n_tokens, width) = _SCORE, values.shape
    n_labels = len(query)
    logits = torch.empty((n_docs, n_labels), dtype=torch.float32, device=keys.device)
    normaliser = torch.empty_like(logits)
    words = (n_docs, n_labels if keep else 0, width // 32)
    signs = torch.empty(words, dtype=torch.int32, device=keys.device)
    _logits_kernel[(triton.cdiv(n_labels, tiles.labels) * n_docs,)](
        _rows(query, tiles.labels), _rows(keys, tiles.tokens), _rows(values, tiles.tokens),
        weight, absent, logits, normaliser, signs, n_labels, n_docs, n_tokens, scale * _LOG2_E,
        H=width, M=tiles.labels, N=tiles.tokens, MASKED=absent is not None,
        EVEN=n_tokens % tiles.tokens == 0, KEEP=keep,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return logits, normaliser, signs


def _score_gradients(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    saved: tuple[Tensor, ...],
    results: tuple[Tensor, Tensor],
    *,
    start: int,
    scale: float,
) -> None:
    """Gradients of the scores, and `dz · α`, of the labels from `start` on."""
    weight, absent, logits, normaliser, signs, gradient = saved
    tiles, (n_docs, n_tokens, width) = _SCORE, values.shape
    count = len(results[0])
    _score_gradients_kernel[(triton.cdiv(count, tiles.labels) * n_docs,)](
        _rows(query, tiles.labels), _rows(keys, tiles.tokens), _rows(values, tiles.tokens),
        weight, absent, logits, normaliser, signs.view(torch.uint8), gradient, *results,
        start, count, len(query), n_docs, n_tokens, scale,
        H=width, M=tiles.labels, N=tiles.tokens, MASKED=absent is not None,
        EVEN=n_tokens % tiles.tokens == 0, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


def _gate(weights: Tensor, signs: Tensor, total: Tensor, *, start: int) -> None:
    """Add `Σ_j dz_j α_j gᵀ_j` of the labels from `start` on to the total, (B, T, h)."""
    tiles, (count, n_docs, n_tokens) = _GATE, weights.shape
    if n_tokens % tiles.tokens:
        tiles = replace(tiles, tokens=tiles.tokens // 2)
    width = total.shape[-1]
    pieces = n_docs * (width // _GATE_UNITS) * triton.cdiv(n_tokens, tiles.tokens)
    splits = max(1, min(_programs(total) // pieces, triton.cdiv(count, 8 * tiles.labels)))
    per_split = triton.cdiv(triton.cdiv(count, splits), tiles.labels) * tiles.labels
    sums = torch.empty((splits, *total.shape), dtype=torch.float32, device=total.device)
    _gate_kernel[(pieces * splits,)](
        weights, signs, sums, start, count, signs.shape[1], n_docs, n_tokens, per_split,
        H=width, W=_GATE_UNITS, C=tiles.labels, N=tiles.tokens, EVEN=n_tokens % tiles.tokens == 0,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    total.add_(sums.sum(0))


def _programs(tensor: Tensor) -> int:
    """Return the number of programs that the device runs at once."""
    if tensor.device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)


@jit
def _logits_kernel(  # type: ignore[no-untyped-def]
    query, keys, values, weight, absent, logits, normaliser, signs,
    n_labels, n_docs, n_tokens, scale,
    H: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    MASKED: tl.constexpr, EVEN: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """M labels of one document: softmax over N tokens at a time, `scale` in powers of two."""
    doc, block = tl.program_id(0) % n_docs, tl.program_id(0) // n_docs
    labels = block * M + tl.arange(0, M)
    inside, units = labels < n_labels, tl.arange(0, H)
    q = query.load([block * M, 0])  # (M, d)
    top = tl.full((M,), -1e38, tl.float32)
    total = tl.zeros((M,), tl.float32)
    found = tl.zeros((M, H), tl.float32)
    for start in range(0, n_tokens, N):
        tokens = start + tl.arange(0, N)
        k = keys.load([doc * n_tokens + start, 0])  # (N, d)
        v = values.load([doc * n_tokens + start, 0])  # (N, H)
        scores = tl.dot(q, k.T) * scale  # (M, N)
        if MASKED:
            missing = absent + doc * n_tokens + tokens
            scores += tl.load(missing, mask=tokens < n_tokens, other=-1e30)[None, :]
        elif not EVEN:
            scores += tl.where(tokens < n_tokens, 0.0, -1e30)[None, :]
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp2(top - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        found = tl.dot(weights.to(v.dtype), v, found * shrink[:, None])
        top = higher
    found = tl.maximum(found / total[:, None], 0.0)
    w = tl.load(weight + units)
    place = doc.to(tl.int64) * n_labels + labels
    tl.store(logits + place, tl.sum(found * w[None, :], 1), mask=inside)
    if KEEP:
        tl.store(normaliser + place, top + tl.log2(total), mask=inside)
        bits = tl.reshape((found > 0).to(tl.int32), (M, H // 32, 32))
        words = tl.sum(bits << tl.arange(0, 32)[None, None, :], 2)  # (M, H / 32)
        word_at = signs + place[:, None] * (H // 32) + tl.arange(0, H // 32)[None, :]
        tl.store(word_at, words, mask=inside[:, None])


@jit
def _score_gradients_kernel(  # type: ignore[no-untyped-def]
    query, keys, values, weight, absent, logits, normaliser, signs, gradient, d_scores, d_weights,
    first_label, count, n_labels, n_docs, n_tokens, scale,
    H: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    MASKED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """M labels of one document: `dz · α` and `dz · α ∘ (dα − z) · scale`, N tokens at a time."""
    doc, block = tl.program_id(0) % n_docs, tl.program_id(0) // n_docs
    rows = block * M + tl.arange(0, M)
    inside, units, octets = rows < count, tl.arange(0, H), tl.arange(0, H // 8)
    q = query.load([first_label + block * M, 0])  # (M, d)
    place = doc.to(tl.int64) * n_labels + first_label + rows
    # A product copies each octet of signs to its eight units: its result is laid out in registers
    # as the next product's factor has to be, which a shift alone would not be.
    octet_at = signs + place[:, None] * (H // 8) + octets[None, :]
    octet = tl.load(octet_at, mask=inside[:, None]).to(q.dtype)  # (M, H / 8)
    spread = (units[None, :] // 8 == octets[:, None]).to(q.dtype)  # (H / 8, H)
    bits = (tl.dot(octet, spread).to(tl.int32) >> (units % 8)[None, :]) & 1
    w = tl.load(weight + units)
    gated = tl.where(bits > 0, w[None, :], 0.0).to(q.dtype)  # (M, H)
    z = tl.load(logits + place, mask=inside) * scale
    norm = tl.load(normaliser + place, mask=inside)
    dz = tl.load(gradient + place, mask=inside)
    for start in range(0, n_tokens, N):
        tokens = start + tl.arange(0, N)
        there = tokens < n_tokens
        k = keys.load([doc * n_tokens + start, 0])  # (N, d)
        v = values.load([doc * n_tokens + start, 0])  # (N, H)
        scores = tl.dot(q, k.T) * (scale * 1.4426950408889634) - norm[:, None]
        if MASKED:
            missing = absent + doc * n_tokens + tokens
            scores += tl.load(missing, mask=there)[None, :]
        weights = tl.exp2(scores) * dz[:, None]  # (M, N)
        d_score = weights * (tl.dot(gated, v.T) * scale - z[:, None])
        at = (rows.to(tl.int64)[:, None] * n_docs + doc) * n_tokens + tokens[None, :]
        written = inside[:, None] if EVEN else inside[:, None] & there[None, :]
        tl.store(d_weights + at, weights.to(q.dtype), mask=written)
        tl.store(d_scores + at, d_score.to(q.dtype), mask=written)


@jit
def _gate_kernel(  # type: ignore[no-untyped-def]
    weights, signs, sums, first_label, count, n_labels, n_docs, n_tokens, per_split,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """W hidden units and N tokens of one document: `Σ_j g_j (dz_j α_j)ᵀ` of one split of labels."""
    program = tl.program_id(0)
    blocks, slices = tl.cdiv(n_tokens, N), H // W
    tokens = program % blocks * N + tl.arange(0, N)
    program = program // blocks
    word = program % slices * (W // 32) + tl.arange(0, W // 32)
    units = program % slices * W + tl.arange(0, W)
    program = program // slices
    doc, split = program % n_docs, program // n_docs
    there = tokens < n_tokens
    first = doc.to(tl.int64) * n_labels + first_label
    total = tl.zeros((W, N), tl.float32)
    for start in range(split * per_split, tl.minimum((split + 1) * per_split, count), C):
        rows = start + tl.arange(0, C)
        inside = rows < count
        at = (rows.to(tl.int64)[:, None] * n_docs + doc) * n_tokens + tokens[None, :]
        read = inside[:, None] if EVEN else inside[:, None] & there[None, :]
        p = tl.load(weights + at, mask=read, other=0.0)  # (C, N)
        word_at = signs + (first + rows)[None, :] * (H // 32) + word[:, None]
        words = tl.load(word_at, mask=inside[None, :])  # (W / 32, C)
        bits = (words[:, None, :] >> tl.arange(0, 32)[None, :, None]) & 1
        gates = tl.reshape(bits, (W, C)).to(p.dtype)
        total = tl.dot(gates, p, total)
    place = (split.to(tl.int64) * n_docs + doc) * n_tokens + tokens
    tl.store(sums + place[None, :] * H + units[:, None], total, mask=there[None, :])
