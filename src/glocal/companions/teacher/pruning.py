"""An exact nearest-neighbour search for single queries that reads most vectors only in part.

The search for a single text is limited by memory bandwidth. The first principal components, a
quarter of the numbers, hold most of each vector: the dot product of two vectors is at most that of
their components plus the product of the lengths of their remainders (Cauchy and Schwarz). Only
vectors whose bound reaches the k-th best score are read in full, so the result is exact.
"""

from __future__ import annotations

import numpy as np

from glocal.arrays import Floats32, Ints
from glocal.companions.torch_threads import one_torch_thread

COMPONENTS_SHARE = 4  # dimensions per component
SAMPLE = 10_000  # vectors the components are computed from
FIRST_LOOK = 64  # vectors read in full for a first estimate of the k-th best score


class PrunedSearch:
    """Vectors and their principal components.

    Args:
        vectors: (N, D) of length 1, or zero.
    """

    def __init__(self, vectors: Floats32) -> None:
        import torch

        self._vectors = vectors
        tensor = torch.from_numpy(vectors)
        sample = tensor[:: max(1, len(vectors) // SAMPLE)]
        with one_torch_thread():  # more of them only wait for small matrices
            _, directions = torch.linalg.eigh(sample.T @ sample)  # ascending
        n_components = max(1, vectors.shape[1] // COMPONENTS_SHARE)
        basis = directions[:, -n_components:]
        heads = tensor @ basis
        self._basis: Floats32 = basis.T.contiguous().numpy()  # (C, D)
        self._heads: Floats32 = heads.numpy()  # (N, C)
        left = tensor.square().sum(1) - heads.square().sum(1)
        self._tails: Floats32 = left.clamp(min=0).sqrt().numpy()  # (N,)

    def candidates(
        self, query: Floats32, k: int, *, exclude: int, slack: float
    ) -> tuple[Ints, Floats32]:
        """Return every row that may be as near as the k-th nearest, in order, and its dot product.

        Args:
            query: (D,) of length 1; a zero query has no candidates.
            k: Number of neighbours, at most a quarter of the number of vectors.
            exclude: A row to exclude; -1 for none.
            slack: Tolerance for rounding.
        """
        if not query.any():
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        head = _products(self._basis, query)
        scores = _products(self._heads, head)
        if exclude >= 0:
            scores[exclude] = -np.inf
        width = min(max(FIRST_LOOK, 2 * k), len(scores) - 1)
        first = np.argpartition(scores, len(scores) - width)[-width:]
        reached = np.sort(_products(self._vectors[first], query))[-k]
        tail = np.sqrt(max(0.0, float((query**2).sum() - (head**2).sum())))
        (near,) = np.nonzero(scores + np.float32(tail) * self._tails >= reached - slack)
        return near, _products(self._vectors[near], query)


def _products(rows: Floats32, vector: Floats32) -> Floats32:
    """Return the dot product of each row with a vector, in one thread.

    Memory bandwidth is the limit here, so threads gain nothing, and on a busy machine waiting for
    them takes many times longer than the product.
    """
    return np.asarray(np.einsum("nd,d->n", rows, vector), dtype=np.float32)
