"""Clusters of labels to train, their weights, and the matrix of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import ranges
from glocal.companions.sparse.solver import Positives


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
    columns: NDArray[np.int32]  # its label, as a place in `labels`
    values: NDArray[np.float32]
    biases: NDArray[np.float32]


def join_weights(blocks: list[ClusterWeights], shape: tuple[int, int]) -> Any:
    """Return the CSR matrix of the weights of all blocks, which are dropped one by one."""
    from scipy.sparse import csr_matrix

    per_feature = np.zeros(shape[0], dtype=np.int64)
    for block in blocks:
        per_feature += np.bincount(block.features, minlength=shape[0])
    bounds = np.concatenate([[0], np.cumsum(per_feature)])
    kind = np.int32 if bounds[-1] <= np.iinfo(np.int32).max else np.int64
    labels, values = np.empty(bounds[-1], kind), np.empty(bounds[-1], np.float32)
    free = bounds[:-1].copy()  # the next free place of each feature
    while blocks:
        block = blocks.pop()
        first = np.flatnonzero(np.diff(block.features, prepend=-1))
        counts = np.diff(first, append=len(block.features))
        places = ranges(free[block.features[first]], counts)
        labels[places], values[places] = block.labels[block.columns], block.values
        free[block.features[first]] += counts
    weights = csr_matrix((values, labels, bounds.astype(kind)), shape=shape)
    weights.sort_indices()
    return weights
