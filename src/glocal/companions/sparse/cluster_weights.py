"""Clusters of labels to train, their weights, and the matrix of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import ranges
from glocal.companions.sparse.solver import START_BIAS, Positives
from glocal.companions.sparse.sparse_rows import SparseRows, as_csr
from glocal.companions.sparse.spool import ArraySpool


@dataclass(frozen=True)
class ClusterProblem:
    """Labels that are trained together.

    Args:
        labels: (k,) their ids.
        texts: The texts they are trained on.
        positives: The labels of each of these texts.
        prior: (F, k) CSC matrix of weights to start from; None to start from zero.
    """

    labels: NDArray[np.int64]
    texts: NDArray[np.int64]
    positives: Positives
    prior: Any


@dataclass(frozen=True)
class ClusterWeights:
    """The weights of one cluster above the threshold."""

    labels: NDArray[np.int64]
    features: NDArray[np.int32]  # of each weight, sorted
    columns: NDArray[np.integer[Any]]  # its label, as a place in `labels`; few bits are enough
    values: NDArray[np.float32]
    biases: NDArray[np.float32]


class WeightBuilder:
    """Makes one matrix of the weights of all clusters, which wait in a temporary file until then.

    Args:
        shape: Numbers of features and labels.

    Attributes:
        biases: (L,) of the labels; `START_BIAS` for those without a cluster.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape, self._spool = shape, ArraySpool("the weights of labels")
        self._labels: list[NDArray[np.int64]] = []
        self._per_feature = np.zeros(shape[0], dtype=np.int64)
        self.biases = np.full(shape[1], START_BIAS, np.float32)

    def close(self) -> None:
        """Delete the file."""
        self._spool.close()

    def add(self, block: ClusterWeights) -> None:
        """Add the weights of a cluster."""
        self._labels.append(block.labels)
        self._per_feature += np.bincount(block.features, minlength=self._shape[0])
        self._spool.add(block.features, block.columns, block.values)
        self.biases[block.labels] = block.biases

    def matrix(self) -> Any:
        """Return the CSR matrix of the weights."""
        bounds = np.concatenate([[0], np.cumsum(self._per_feature)])
        kind = np.int32 if bounds[-1] <= np.iinfo(np.int32).max else np.int64
        labels_of, values_of = np.empty(bounds[-1], kind), np.empty(bounds[-1], np.float32)
        free = bounds[:-1].copy()  # the next free place of each feature
        for labels, (features, columns, values) in zip(self._labels, self._spool, strict=True):
            first = np.flatnonzero(np.diff(features, prepend=-1))
            counts = np.diff(first, append=len(features))
            places = ranges(free[features[first]], counts)
            labels_of[places], values_of[places] = labels[columns], values
            free[features[first]] += counts
        weights = as_csr(SparseRows(values_of, labels_of, bounds.astype(kind), self._shape))
        weights.sort_indices()
        return weights
