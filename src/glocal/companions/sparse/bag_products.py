"""Products of sparse matrices with dense ones by PyTorch's embedding bags, on a CPU.

A row of the product is the weighted sum of some rows of the dense matrix: a bag of embeddings. Its
kernel uses the widest vectors of the processor and reads rows ahead, so that it takes a quarter to
a tenth of the time of scipy's product; results differ by rounding. Each row is added up by one
thread in a fixed order: the same inputs give the same bits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from typing import Any

import numpy as np

from glocal.companions.sparse.solver import Floats, TextProducts
from glocal.companions.torch_threads import one_torch_thread

# Entries of the training texts from which products take longer than the start of PyTorch.
LEAST_ENTRIES = 1_000_000


def bags_help(features: Any) -> bool:
    """Return whether embedding bags are there and worth their start for these texts (CSR)."""
    return features.nnz >= LEAST_ENTRIES and importlib.util.find_spec("torch") is not None


def torch_is_loaded() -> bool:
    """Return whether PyTorch is loaded already, so that embedding bags help few texts too."""
    return "torch" in sys.modules


def one_thread_each(bags: bool) -> contextlib.AbstractContextManager[None]:
    """Return a context in which one thread computes each product, for several at a time."""
    return one_torch_thread() if bags else contextlib.nullcontext()


def text_products(features: Any, *, bags: bool) -> TextProducts:
    """Return the products of texts (n, F) CSR, by embedding bags or by scipy."""
    return (BagProducts if bags else TextProducts)(features)


def bag_product(matrix: Any, dense: Floats) -> Floats:
    """Return the product of a float32 CSR matrix (n, m) and a dense one (m, k)."""
    import torch

    if not matrix.nnz:
        return np.zeros((matrix.shape[0], dense.shape[1]), np.float32)
    bounds, columns, values = (
        torch.from_numpy(array) for array in (matrix.indptr, matrix.indices, matrix.data)
    )
    rows = torch.nn.functional.embedding_bag(
        columns,
        torch.from_numpy(np.ascontiguousarray(dense)),
        bounds,
        mode="sum",
        per_sample_weights=values,
        include_last_offset=True,
    )
    product: Floats = rows.numpy()
    return product


class BagProducts(TextProducts):
    """The same products as those of `TextProducts`, by embedding bags."""

    def _keep(self, shared: Any) -> None:
        self._shared, self._by_text = shared, shared.T.tocsr()

    def __call__(self, factor: Floats) -> Floats:
        """Return XXᵀ times a factor (n, k)."""
        product = bag_product(self._by_text, bag_product(self._shared, factor))
        product += self._own * factor
        return product
