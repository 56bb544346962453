"""Clusters of equal size of labels with similar texts, by repeated halving.

A label is represented by the mean of its texts in a small dense space of hashed features (PIFA:
positive instance feature aggregation). A cluster is halved by 2-means with halves of equal size.
Similar labels then share the texts they are trained on (`cluster_labels`), or the cluster that is
picked before them (`label_leaves`).

Clusters that come from halving as often everywhere are a tree: the cluster of label j with 2^c
clusters in all is `leaf_j >> (d − c)`, where 2^d is the number of leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

HASHED_WIDTH = 256
ROUNDS = 8
CHUNK_TEXTS = 65_536  # texts that are hashed at a time


def label_means(
    features: Any, labels: Any, *, seed: int, width: int = HASHED_WIDTH
) -> NDArray[np.float32]:
    """Return the mean direction of each label's texts.

    Args:
        features: (n, F) CSR matrix of the texts.
        labels: (n, L) CSR matrix of ones.
        seed: Random seed of the signs and places the features are hashed to.
        width: Width of the dense space.

    Returns:
        (L, width) rows of length one; zero for a label without texts.
    """
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    n_features = features.shape[1]
    places = rng.integers(width, size=n_features)
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=n_features)
    hashing = csr_matrix((signs, places, np.arange(n_features + 1)), shape=(n_features, width))
    sums = np.zeros((labels.shape[1], width), np.float32)
    for start in range(0, features.shape[0], CHUNK_TEXTS):
        rows = slice(start, start + CHUNK_TEXTS)
        sums += labels[rows].T @ (features[rows] @ hashing).toarray()
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    means: NDArray[np.float32] = sums / np.maximum(length, 1e-12)
    return means


def cluster_labels(means: NDArray[np.float32], *, size: int, seed: int) -> list[NDArray[np.int64]]:
    """Divide labels into clusters of at most `size` labels and of similar sizes.

    Args:
        means: (L, d) one vector per label.
        size: Largest size of a cluster.
        seed: Random seed of the first centres.

    Returns:
        The labels of each cluster, sorted.
    """
    rng = np.random.default_rng(seed)
    pending, finished = [np.arange(len(means))], []
    while pending:
        labels = pending.pop()
        if len(labels) <= size:
            finished.append(np.sort(labels))
        else:
            pending.extend(_halves(labels, means[labels], rng))
    return finished


def label_leaves(means: NDArray[np.float32], *, n_leaves: int, seed: int) -> NDArray[np.int64]:
    """Return the leaf of each label in a tree of similar labels, (L,).

    Leaves have equally many labels, give or take one.

    Args:
        means: (L, d) one vector per label.
        n_leaves: Number of leaves, a power of two.
        seed: Random seed of the first centres.
    """
    rng = np.random.default_rng(seed)
    groups = [np.arange(len(means))]
    while len(groups) < n_leaves:
        groups = [half for labels in groups for half in _halves(labels, means[labels], rng)]
    leaves = np.zeros(len(means), dtype=np.int64)
    for leaf, labels in enumerate(groups):
        leaves[labels] = leaf
    return leaves


def tfidf(counts: Any) -> Any:
    """Return damped counts (n, F) weighted by the rarity of each feature, rows of length one."""
    from scipy.sparse import csr_matrix

    weighted = csr_matrix(counts, dtype=np.float32)
    n_texts, n_features = weighted.shape
    frequency = np.bincount(weighted.indices, minlength=n_features)
    rarity = np.log((1 + n_texts) / (1 + frequency)).astype(np.float32)
    weighted.data = (1 + np.log(weighted.data)) * rarity[weighted.indices]
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    weighted.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(weighted.indptr))
    return weighted


def _halves(
    labels: NDArray[np.int64], means: NDArray[np.float32], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if len(labels) < 2:
        return labels, labels[:0]
    centres = means[rng.choice(len(labels), 2, replace=False)]
    half = (len(labels) + 1) // 2
    order = np.arange(len(labels))
    for _ in range(ROUNDS):
        order = np.argsort(means @ (centres[1] - centres[0]), kind="stable")
        centres = np.stack([means[order[:half]].mean(axis=0), means[order[half:]].mean(axis=0)])
    return labels[order[:half]], labels[order[half:]]
