"""Clusters of labels solved on a GPU: the steps of `solver`, with texts and weights as tensors.

The features of all texts are copied to the device once. The texts of a cluster, their transposed
matrix, every step of the solver and the weights above the threshold are computed there; only these
weights come back. Sums have a fixed order, so the same texts give the same weights on one device;
numpy's weights differ by rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glocal.companions.sparse.cluster_weights import ClusterProblem, ClusterWeights
from glocal.companions.sparse.device_rows import DeviceRows
from glocal.companions.sparse.solver import Positives, solve_block
from glocal.config import SparseConfig


class DeviceTexts:
    """Training texts on a device.

    Args:
        features: (n, F) float32 CSR matrix.
        device: Name of the device.
    """

    def __init__(self, features: Any, device: str) -> None:
        self._rows = DeviceRows.of(features, device)

    def solve(self, problem: ClusterProblem, config: SparseConfig) -> ClusterWeights:
        """Train the scorers of a cluster of labels."""
        rows, prior = self._rows.take(self._tensor(problem.texts)), problem.prior
        used = torch.unique(rows.columns).long()
        start, scores = None, None
        if prior is not None:
            entries = prior.tocoo()
            named, labels = self._tensor(entries.row).long(), self._tensor(entries.col).long()
            used = torch.unique(torch.cat([used, named]))
            start = torch.zeros(len(used), prior.shape[1], device=rows.device)
            start[torch.searchsorted(used, named), labels] = self._tensor(entries.data)
        products = _DeviceProducts(rows.within(used))
        if start is not None:
            scores = products.texts.product(start)
        given = problem.positives
        places = self._tensor(given.rows).long(), self._tensor(given.columns).long()
        coefficients, biases = solve_block(
            products,
            Positives(*places, given.n_labels),
            cost=config.cost,
            iterations=config.iterations,
            start_scores=scores,
        )
        weights = products.by_feature.product(coefficients)
        if start is not None:
            weights += start
        feature, label = (weights.abs() >= config.threshold).nonzero(as_tuple=True)
        return ClusterWeights(
            problem.labels,
            used[feature].int().cpu().numpy(),
            label.int().cpu().numpy(),
            weights[feature, label].cpu().numpy(),
            biases.cpu().numpy(),
        )

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._rows.device)


class _DeviceProducts:
    """Products with the matrix of inner products of texts on a device."""

    def __init__(self, texts: DeviceRows) -> None:
        self.texts, self.by_feature = texts, texts.transposed()
        self.n_texts = len(texts)

    def zeros(self, *shape: int) -> Tensor:
        """Return a tensor of zeros."""
        return torch.zeros(shape, device=self.texts.device)

    def __call__(self, factor: Tensor) -> Tensor:
        """Return XXᵀ times a factor (n, k)."""
        return self.texts.product(self.by_feature.product(factor))
