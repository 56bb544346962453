"""Products of sparse matrices by rows on a GPU, in Triton.

- `row_products`: a sparse matrix times a dense one. A program adds up one row of the result, so
  that sums have a fixed order and the same inputs give the same bits.
- `add_scores`: a sparse matrix times a sparse one, added to a dense result. A program adds up one
  text, feature by feature; the weights of one feature belong to different labels.

PyTorch's own sparse products run without Triton, but neither promises the same bits twice.
"""
# ruff: noqa: ANN001, ANN202 (a kernel's arguments have the compiler's types)

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from glocal.encoders.triton_jit import jit, tl, triton

# (n + 1,) int64, where each row starts, and the end of the last; (entries,) int32 columns; values.
Rows = tuple[Tensor, Tensor, Tensor]
_COLUMNS = 64  # of the dense matrix that a program adds up
_ENTRIES = 16  # of a sparse row that are read together
_WEIGHTS = 512  # of a feature that are added together


def has_kernels(device: torch.device) -> bool:
    """Return whether the kernels run on a device."""
    return triton is not None and device.type == "cuda"


def compile_kernels(device: str) -> None:
    """Run every kernel once, so that none has to be compiled later."""
    if not has_kernels(torch.device(device)):
        return
    column = torch.zeros(1, dtype=torch.int32, device=device)
    rows = torch.arange(2, device=device), column, torch.ones(1, device=device)
    for width in (64, 63):  # multiples of 16 and others are compiled apart
        dense = torch.ones(1, width, device=device)
        row_products(rows, dense)
        add_scores(dense, rows, rows)


def row_products(rows: Rows, dense: Tensor) -> Tensor:
    """Return a sparse matrix (n, m) times a dense one (m, k), contiguous, both float32."""
    n_rows, width = len(rows[0]) - 1, dense.shape[1]
    product = dense.new_empty(n_rows, width)
    if n_rows and width:
        grid = (n_rows, triton.cdiv(width, _COLUMNS))
        sizes: dict[str, Any] = {"COLUMNS": _COLUMNS, "ENTRIES": _ENTRIES, "num_warps": 2}
        with _chosen(dense.device):
            _row_products[grid](*rows, dense, product, width, **sizes)
    return product


def add_scores(scores: Tensor, texts: Rows, weights: Rows) -> None:
    """Add the product of texts (n, F) and weights (F, L), both sparse, to scores (n, L) in place.

    Args:
        scores: (n, L) float32, contiguous.
        texts: The features of the texts.
        weights: The weights of each feature, float32 or float16, each label once.
    """
    n_texts, n_labels = scores.shape
    if n_texts and n_labels:
        sizes: dict[str, Any] = {"WEIGHTS": _WEIGHTS, "num_warps": 4}
        with _chosen(scores.device):
            _add_scores[(n_texts,)](scores, *texts, *weights, n_labels, **sizes)


def _chosen(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which kernels run on a device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@jit
def _row_products(  # type: ignore[no-untyped-def]
    bounds, columns, values, dense, product, width, COLUMNS: tl.constexpr, ENTRIES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = column < width
    start, stop = tl.load(bounds + row), tl.load(bounds + row + 1)
    total = tl.zeros((ENTRIES, COLUMNS), tl.float32)
    for first in range(start, stop, ENTRIES):
        entry = first + tl.arange(0, ENTRIES)
        inside = entry < stop
        source = tl.load(columns + entry, mask=inside, other=0).to(tl.int64)
        value = tl.load(values + entry, mask=inside, other=0.0)
        places = source[:, None] * width + column[None, :]
        factor = tl.load(dense + places, mask=inside[:, None] & there[None, :], other=0.0)
        total += value[:, None] * factor
    tl.store(product + row * width + column, tl.sum(total, 0), mask=there)


@jit
def _add_scores(  # type: ignore[no-untyped-def]
    scores,
    bounds,
    features,
    values,
    weight_bounds,
    labels,
    weights,
    n_labels,
    WEIGHTS: tl.constexpr,
):
    text = tl.program_id(0).to(tl.int64)
    own = scores + text * n_labels
    for entry in range(tl.load(bounds + text), tl.load(bounds + text + 1)):
        feature = tl.load(features + entry).to(tl.int64)
        value = tl.load(values + entry)
        start, stop = tl.load(weight_bounds + feature), tl.load(weight_bounds + feature + 1)
        for first in range(start, stop, WEIGHTS):
            place = first + tl.arange(0, WEIGHTS)
            inside = place < stop
            label = tl.load(labels + place, mask=inside, other=0)
            weight = tl.load(weights + place, mask=inside, other=0.0).to(tl.float32)
            tl.atomic_add(own + label, value * weight, mask=inside, sem="relaxed")
        # The next feature may have a weight for the same label: one after the other.
        tl.debug_barrier()
