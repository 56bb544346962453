"""Clusters of labels solved on the CPU: the steps of `solver` by numpy and scipy.

Where there are many texts and PyTorch is installed, its embedding bags compute the products.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.bag_products import (
    bag_product,
    bags_help,
    one_thread_each,
    text_products,
)
from glocal.companions.sparse.cluster_weights import ClusterProblem, ClusterWeights
from glocal.companions.sparse.solver import Positives, solve_block
from glocal.config import SparseConfig

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

    def one_thread_each(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which each cluster is solved by one thread."""
        return one_thread_each(self._bags)

    def solve(self, problem: ClusterProblem, config: SparseConfig) -> ClusterWeights:
        """Train the scorers of a cluster of labels."""
        # The texts are passed on without a name here, so that `solved` can drop them early.
        return ClusterWeights(
            problem.labels,
            *solved(
                self._features[problem.texts],
                problem.positives,
                problem.prior,
                config,
                bags=self._bags,
            ),
        )


def large_entries(
    matrix: NDArray[np.float32], least: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the rows, columns and values of the entries whose size is at least a number.

    numpy finds the entries of a list of values several times as fast as those of a table.
    """
    values = matrix.ravel()
    places = np.flatnonzero(np.abs(values) >= least)
    rows, columns = np.divmod(places, matrix.shape[1])
    return rows, columns, values[places]


def solved(
    features: Any, positives: Positives, prior: Any, config: SparseConfig, *, bags: bool = False
) -> tuple[NDArray[np.int32], NDArray[Any], NDArray[np.float32], NDArray[np.float32]]:
    """Train the scorers of some labels.

    Args:
        features: (n, F) float32 CSR matrix of the texts.
        positives: The labels of each text.
        prior: (F, k) sparse matrix of weights to start from; None to start from zero.
        config: The settings.
        bags: Whether embedding bags compute the products.

    Returns:
        The features of the weights above the threshold, sorted, their labels and values; biases.
    """
    prior = None if prior is None else prior.tocsr()
    start_scores = None if prior is None else (features @ prior).toarray()
    products = text_products(features, bags=bags)
    del features  # the products hold what they need of them
    coefficients, biases = solve_block(
        products,
        positives,
        cost=config.cost,
        iterations=config.iterations,
        start_scores=start_scores,
    )
    by_feature = products.by_feature
    used = np.diff(by_feature.indptr) > 0
    if prior is not None:
        used |= np.diff(prior.indptr) > 0
    chosen = np.flatnonzero(used)
    columns_of = np.min_scalar_type(positives.n_labels)  # one byte as a rule
    found: list[tuple[NDArray[Any], ...]] = []
    for start in range(0, max(1, len(chosen)), CHUNK_FEATURES):
        chunk = chosen[start : start + CHUNK_FEATURES]
        own = by_feature[chunk]
        weights = bag_product(own, coefficients) if bags else own @ coefficients
        if prior is not None:
            weights += prior[chunk].toarray()
        feature, label, kept = large_entries(weights, config.threshold)
        found.append((chunk[feature].astype(np.int32), label.astype(columns_of), kept))
    features_of, labels_of, values = (np.concatenate(part) for part in zip(*found, strict=True))
    return features_of, labels_of, values, biases
