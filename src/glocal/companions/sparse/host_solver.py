"""Clusters of labels solved on the CPU: the steps of `solver` by numpy and scipy.

Where there are many texts and PyTorch is installed, its embedding bags compute the products.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.bag_products import (
    BagProducts,
    bag_product,
    bags_help,
)
from glocal.companions.sparse.cluster_weights import SolvedCluster
from glocal.companions.sparse.solver import Positives, TextProducts, solve_block
from glocal.companions.torch_threads import one_torch_thread

# Features whose weights are held dense at a time, before small ones are dropped.
CHUNK_FEATURES = 16_384


class HostTexts:
    """Training texts in the memory of this machine.

    Args:
        features: (n, F) float32 CSR matrix.
    """

    def __init__(self, features: Any) -> None:
        self._features = features
        self._bags = bags_help(features)

    @contextlib.contextmanager
    def one_thread_each(self) -> Iterator[None]:
        """Let each cluster be solved by one thread."""
        with one_torch_thread() if self._bags else contextlib.nullcontext():
            yield

    def solve(
        self,
        texts: NDArray[np.int64],
        positives: Positives,
        prior: Any,
        *,
        cost: float,
        iterations: int,
        threshold: float,
    ) -> SolvedCluster:
        """Train the scorers of a cluster of labels.

        Args:
            texts: The texts it is trained on.
            positives: The labels of each of these texts.
            prior: (F, k) CSC matrix of weights to start from; None to start from zero.
            cost: SVM cost C.
            iterations: Number of steps.
            threshold: Smaller weights are dropped.
        """
        features = self._features[texts]
        prior = None if prior is None else prior.tocsr()
        products = (BagProducts if self._bags else TextProducts)(features)
        coefficients, biases = solve_block(
            products,
            positives,
            cost=cost,
            iterations=iterations,
            start_scores=None if prior is None else (features @ prior).toarray(),
        )
        by_feature = products.by_feature
        used = np.diff(by_feature.indptr) > 0
        if prior is not None:
            used |= np.diff(prior.indptr) > 0
        chosen = np.flatnonzero(used)
        rows, columns, values = [], [], []
        for start in range(0, len(chosen), CHUNK_FEATURES):
            chunk = chosen[start : start + CHUNK_FEATURES]
            own = by_feature[chunk]
            weights = bag_product(own, coefficients) if self._bags else own @ coefficients
            if prior is not None:
                weights += prior[chunk].toarray()
            feature, label = np.nonzero(np.abs(weights) >= threshold)
            rows.append(chunk[feature].astype(np.int32))
            columns.append(label.astype(np.int32))
            values.append(weights[feature, label])
        return SolvedCluster(
            np.concatenate(rows), np.concatenate(columns), np.concatenate(values), biases
        )
