"""Label clusters by training frequency: a head and tails, cut by proportions (APLC-XLNet 3.3).

- labels are ranked by decreasing training count, ties by label id, so equal counts always give
  equal clusters; labels without a training document come last;
- every cluster has at least one label, however small its share;
- biases of gates and labels start at the log-odds of their priors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from glocal.config.rules import partition_problems
from glocal.errors import ConfigError
from glocal.log_odds import log_odds


@dataclass(frozen=True)
class Clusters:
    """The assignment of labels to the head and the tails.

    Attributes:
        order: (L,) label ids by decreasing training count.
        bounds: First rank of each cluster, then the number of labels: cluster t holds the ranks
            `bounds[t] … bounds[t + 1]`; cluster 0 is the head.
    """

    order: np.ndarray
    bounds: tuple[int, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of labels in the head and in each tail."""
        return [stop - start for start, stop in pairwise(self.bounds)]

    @property
    def n_labels(self) -> int:
        """Number of labels in all clusters."""
        return self.bounds[-1]

    @property
    def n_tails(self) -> int:
        """Number of clusters except the head."""
        return len(self.bounds) - 2

    @property
    def ranks(self) -> np.ndarray:
        """Rank of each label id, (L,)."""
        ranks = np.empty_like(self.order)
        ranks[self.order] = np.arange(len(self.order))
        return ranks

    @cached_property
    def cluster_of(self) -> np.ndarray:
        """Cluster of each label id, (L,); 0 is the head."""
        return np.searchsorted(self.bounds, self.ranks, side="right") - 1

    def n_visited(self, labels: np.ndarray) -> int:
        """Count the labels in the loss of a document with these labels (L_i of Eq. 5)."""
        sizes = self.sizes
        met: set[int] = set(self.cluster_of[labels].tolist())
        return sizes[0] + sum(sizes[tail] for tail in met - {0})


class ClusterPriors(NamedTuple):
    """Prior log-odds of each gate and each label."""

    gates: np.ndarray  # (K,)
    labels: np.ndarray  # (L,) by rank; in a tail, given that the cluster is present


def label_clusters(counts: np.ndarray, partition: Sequence[float]) -> Clusters:
    """Sort labels by training count and cut them by proportions.

    Args:
        counts: (L,) number of training documents of each label; may be 0.
        partition: Shares of labels in the head and in each tail.

    Raises:
        ConfigError: When the shares are not positive, do not sum to one, or there are fewer labels
            than clusters.
    """
    order = np.argsort(-counts.astype(np.int64), kind="stable")
    sizes = partition_sizes(len(counts), partition)
    return Clusters(order, (0, *(int(bound) for bound in np.cumsum(sizes))))


def partition_sizes(n_labels: int, partition: Sequence[float]) -> list[int]:
    """Return the number of labels of each cluster: rounded shares, at least one each."""
    problems = partition_problems(partition, n_labels)
    ConfigError.raise_any(problems)
    shares = np.cumsum(partition) / math.fsum(partition)
    bounds = [0]
    for place, share in enumerate(shares, start=1):
        left_for_others = len(partition) - place
        bound = max(bounds[-1] + 1, round(float(share) * n_labels))
        bounds.append(min(bound, n_labels - left_for_others))
    return [stop - start for start, stop in pairwise(bounds)]


def cluster_priors(clusters: Clusters, counts: np.ndarray, n_documents: int) -> ClusterPriors:
    """Compute prior log-odds of gates and labels from the training counts.

    A gate's prior assumes independent labels: 1 − Π (1 − p_j) over its cluster. In a tail, a
    label's prior is divided by its gate's, since the two are multiplied.
    """
    smoothed = (counts[clusters.order].astype(np.float64) + 0.5) / (n_documents + 1.0)
    labels = np.clip(smoothed, 1e-12, 1 - 1e-6)
    gates = np.empty(clusters.n_tails)
    for tail, (start, stop) in enumerate(pairwise(clusters.bounds[1:])):
        gates[tail] = np.clip(-np.expm1(np.log1p(-labels[start:stop]).sum()), 1e-12, 1 - 1e-6)
        labels[start:stop] = np.clip(labels[start:stop] / gates[tail], 1e-12, 1 - 1e-6)
    return ClusterPriors(log_odds(gates), log_odds(labels))
