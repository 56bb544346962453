"""Training of one linear scorer per label, and the choice of the texts each is trained on.

- Labels are clustered by their texts. The labels of a cluster are trained together (`solver`) on
  the texts that have one of them, the texts that a matcher assigns to the cluster, and a random
  sample: the texts a label could be confused on. All others would satisfy the margin anyway.
- The matcher is the same model with clusters as its labels, so that with very many labels it is
  clustered in turn; up to `DIRECT_LABELS` labels are trained on every text.
- Matched texts lower the scores of labels that look right for a text, and of no others. This helps
  where the clusters of a new text can be told. Where they cannot it harms: wrong labels, which were
  not trained on such texts, keep their scores and win. So held-out texts decide (`negatives =
  "auto"`). Without matched texts every cluster is trained on random texts alone, which keeps scores
  comparable, and the score of its cluster is added to that of each label (`LabelGroups`).
- Weights below a threshold are dropped.
- Clusters are independent and have their own random streams: the result does not depend on the
  number of threads.
- With a GPU, clusters are solved there (`device_solver`), one after the other; several processes
  or machines share them (`cluster_solvers`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from glocal.arrays import GrowingArray
from glocal.companions.sparse.cluster_solvers import ClusterSolvers
from glocal.companions.sparse.cluster_weights import ClusterProblem, ClusterWeights, WeightBuilder
from glocal.companions.sparse.host_solver import HostTexts
from glocal.companions.sparse.solver import Positives
from glocal.companions.sparse.sparse_rows import combined_rows
from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer, top_labels
from glocal.companions.sparse.threads import ordered_map
from glocal.companions.sparse.torch_device import ran_out_of_memory
from glocal.config import SparseConfig
from glocal.progress import StagedProgress, silent
from glocal.vocabulary.label_clusters import cluster_labels, label_means

if TYPE_CHECKING:
    from glocal.companions.sparse.device_solver import DeviceTexts

logger = logging.getLogger(__name__)

DIRECT_LABELS = 1024
# The matcher only has to find texts worth training on: a few steps on frequent features suffice.
MATCHER_ITERATIONS = 6
MATCHER_FEATURES = 16_384
# Matched texts are used if at least this share of held-out labels has its cluster among the `beam`
# best. Measured: titles of library records 0.35 (60,000 texts) and 0.50 (588,000), where matched
# texts harm; titles with abstracts 0.70, where they help; laws 0.94 and diagnoses 0.95.
TRUSTED_RECALL = 0.6
# Settings where no texts are matched: random texts and the weight of names, in multiples of what is
# configured, and the most steps of the solver (twelve give the same scores as six).
RANDOM_SAMPLES = 4
RANDOM_NAMES = 2.0
RANDOM_ITERATIONS = 6
ROWS_AT_A_TIME = 65_536  # of a matrix that is copied in part
USUAL_FEATURES = 200  # of a text; of shorter ones more are sampled, at the same cost
MOST_STEPS = 2.0  # of the solver where texts are shorter, in multiples of what is configured
CLUSTER_SAMPLE = 4000  # random texts on which each block of clusters is trained
CLUSTER_SHARE = np.float32(0.3)  # part of a cluster's score in its labels', before calibration
WIDE_CLUSTERS = 4  # size of the wide clusters, in multiples of `cluster_size`
# Memory that a thread takes to train labels together, per feature of a text (three copies) and per
# text and label (eleven numbers). Where all texts would take more than `MOST_BYTES`, some are drawn
# at random, and up to `LEAST_OWN_TEXTS` of each label are added.
MOST_BYTES = 640_000_000
ENTRY_BYTES, CELL_BYTES = 24, 44
LEAST_OWN_TEXTS = 200
_NO_MEANS: NDArray[np.float32] = np.zeros((0, 0), np.float32)


class LinearTrainer:
    """Trains one linear scorer per label.

    Args:
        features: (n, F) float32 CSR matrix of the training texts, rows of length one.
        labels: (n, L) CSR matrix of ones.
        config: The settings.
        names: (F, L) CSC matrix of features of the labels' names, or None.
        held_out: Features and labels of texts that are not trained on; without them texts are
            matched unless the settings say otherwise.
        seed: Random seed.
        threads: Number of threads.
        device: Name of the torch device to compute on; None for numpy.
        solvers: Workers that solve clusters; by default the threads of this process.
        progress: Receives how much of each stage is done.
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        config: SparseConfig,
        *,
        names: Any = None,
        held_out: tuple[Any, Any] | None = None,
        seed: int = 0,
        threads: int = 1,
        device: str | None = None,
        solvers: ClusterSolvers | None = None,
        progress: StagedProgress = silent,
    ) -> None:
        self._features, self._config, self._seed = features, config, seed
        self._threads, self._device, self._progress = threads, device, progress
        self._solvers = solvers
        self._by_label = labels.tocsc()
        self._names, self._held_out = names, held_out
        self._groups: LabelGroups | None = None
        self._group_biases: NDArray[np.float32] = np.zeros(0, np.float32)
        self._trained = np.flatnonzero(np.diff(self._by_label.indptr))
        self._means = _NO_MEANS
        self._clusters = self._cluster(labels)
        self._texts_of = self._match(labels)
        self._means = _NO_MEANS  # they may take more memory than the texts

    def fit(self) -> LinearScorer:
        """Train every label that has a text."""
        report = self._progress("training label groups")
        count, solvers = len(self._clusters), self._solvers
        solved = (
            self._solved(range(count)) if solvers is None else solvers.solve(self._solved, count)
        )
        shape = self._features.shape[1], self._by_label.shape[1]
        with contextlib.closing(WeightBuilder(shape)) as builder:
            for done, weights in enumerate(solved, start=1):
                builder.add(weights)
                report(done, count)
            return self._assemble(builder)

    def _solved(self, clusters: Sequence[int]) -> Iterator[ClusterWeights]:
        """Yield the weights of clusters, solved by this process."""
        left = clusters
        if self._device is not None:
            from glocal.companions.sparse.device_solver import DeviceTexts

            try:
                texts = DeviceTexts(self._features, self._device)
                for cluster in clusters:
                    yield self._solve_on(texts, cluster)
                    left = left[1:]
            except RuntimeError as error:
                if not ran_out_of_memory(error):
                    raise
                logger.warning("the GPU has too little memory left; words are learned on the CPU")
        host = HostTexts(self._features)
        with host.one_thread_each():
            yield from ordered_map(partial(self._solve_on, host), left, threads=self._threads)

    def _cluster(self, labels: Any) -> list[NDArray[np.int64]]:
        if len(self._trained) <= self._config.cluster_size:
            return [self._trained]
        self._progress("grouping labels")
        self._means = label_means(self._features, labels, seed=self._seed)[self._trained]
        return self._clusters_of_size(self._config.cluster_size)

    def _clusters_of_size(self, size: int) -> list[NDArray[np.int64]]:
        clusters = cluster_labels(self._means, size=size, seed=self._seed)
        return [self._trained[label_ids] for label_ids in clusters]

    def _match(self, labels: Any) -> Sequence[NDArray[np.int64]] | None:
        """Return texts to train each cluster on beyond its own; None for every text."""
        n_clusters = len(self._clusters)
        if n_clusters <= self._config.beam or self._by_label.shape[1] <= DIRECT_LABELS:
            return None
        by_cluster = self._cluster_matrix(labels, self._clusters)
        if self._config.negatives != "matched":
            clusters = self._clusters_alone(by_cluster)
            if self._config.negatives == "random" or self._recall(clusters) < TRUSTED_RECALL:
                self._groups, self._group_biases = self._group(labels, clusters)
                self._config = _random_settings(self._config)
                return self._no_texts()
        common = _most_frequent(self._features, MATCHER_FEATURES)
        matcher = self._fitted(LinearTrainer, common, by_cluster, _matcher_settings(self._config))
        best = self._best(matcher, common)
        self._config = self._for_short_texts()
        order = np.argsort(best.ravel(), kind="stable")
        bounds = np.searchsorted(best.ravel()[order], np.arange(n_clusters + 1))
        texts = order // best.shape[1]
        return [texts[start:stop] for start, stop in itertools.pairwise(bounds)]

    def _for_short_texts(self) -> SparseConfig:
        """Return the settings with more random texts and more steps where texts are short."""
        n_features = max(1.0, self._features.nnz / self._features.shape[0])
        shorter, config = max(1.0, USUAL_FEATURES / n_features), self._config
        steps = int(config.iterations * min(MOST_STEPS, shorter))
        return replace(config, sample=int(config.sample * shorter), iterations=steps)

    def _no_texts(self) -> list[NDArray[np.int64]]:
        return [np.empty(0, dtype=np.int64)] * len(self._clusters)

    def _clusters_alone(self, by_cluster: Any) -> LinearScorer:
        """Return a scorer of clusters, trained on their own texts and random ones."""
        config = replace(_matcher_settings(self._config), sample=CLUSTER_SAMPLE)
        return self._fitted(_UnmatchedTrainer, self._features, by_cluster, config)

    def _fitted(
        self, kind: type[LinearTrainer], features: Any, by_cluster: Any, config: SparseConfig
    ) -> LinearScorer:
        """Return a scorer of clusters, trained where this one trains."""
        progress = self._progress
        return kind(
            features,
            by_cluster,
            config,
            seed=self._seed,
            threads=self._threads,
            device=self._device,
            solvers=self._solvers,
            progress=lambda _: progress("matching texts"),
        ).fit()

    def _best(self, scorer: LinearScorer, features: Any) -> NDArray[np.int64]:
        """Return the `beam` best clusters of texts."""
        if self._device is not None:
            from glocal.companions.sparse.device_scorer import DeviceScorer

            try:
                return DeviceScorer(scorer, self._device).top(features, self._config.beam)[0]
            except RuntimeError as error:
                if not ran_out_of_memory(error):
                    raise
        return top_labels(scorer, features, self._config.beam, threads=self._threads)[0]

    def _recall(self, clusters: LinearScorer) -> float:
        """Return the share of held-out labels whose cluster is among the `beam` best."""
        if self._held_out is None or not self._held_out[1].nnz:
            return 1.0
        features, gold = self._held_out
        best = self._best(clusters, features)
        cluster = self._group_of(self._clusters)[gold.indices]
        rows = np.repeat(np.arange(gold.shape[0]), np.diff(gold.indptr))
        return float((best[rows] == cluster[:, None]).any(axis=1).mean())

    def _group(self, labels: Any, narrow: LinearScorer) -> tuple[LabelGroups, NDArray[np.float32]]:
        """Return weights and biases that labels share with their cluster and with a wider one."""
        clusters = self._clusters_of_size(WIDE_CLUSTERS * self._config.cluster_size)
        wide = self._clusters_alone(self._cluster_matrix(labels, clusters))
        of = np.stack([self._group_of(self._clusters), self._group_of(clusters)], axis=1)
        of[:, 1] += np.where(of[:, 1] >= 0, len(self._clusters), 0)
        weights = combined_rows(_side_by_side, narrow.weights, wide.weights)
        weights.data *= CLUSTER_SHARE
        biases = np.concatenate([narrow.biases, wide.biases]) * CLUSTER_SHARE
        return LabelGroups(weights, of.astype(np.int32)), biases

    def _group_of(self, clusters: Sequence[NDArray[np.int64]]) -> NDArray[np.int32]:
        """Return the cluster of each label, -1 for labels without a training text."""
        group = np.full(self._by_label.shape[1], -1, dtype=np.int32)
        for cluster, label_ids in enumerate(clusters):
            group[label_ids] = cluster
        return group

    def _cluster_matrix(self, labels: Any, clusters: Sequence[NDArray[np.int64]]) -> Any:
        """Return which texts have a label of each cluster, (n, clusters)."""
        group = self._group_of(clusters)
        label_ids = np.flatnonzero(group >= 0)
        belongs = csr_matrix(
            (np.ones(len(label_ids), np.float32), (label_ids, group[label_ids])),
            shape=(labels.shape[1], len(clusters)),
        )
        matrix = labels @ belongs
        matrix.data[:] = 1
        return matrix

    def _texts(self, cluster: int) -> NDArray[np.int64]:
        """Return the texts a cluster is trained on, sorted."""
        n_texts = self._features.shape[0]
        rng = np.random.default_rng([self._seed, 0, cluster])
        of_labels = self._by_label[:, self._clusters[cluster]]
        if self._texts_of is None:
            texts = np.arange(n_texts)
        else:
            sample = rng.integers(n_texts, size=self._config.sample)
            texts = np.unique(np.concatenate([self._texts_of[cluster], of_labels.indices, sample]))
        text_bytes = ENTRY_BYTES * self._features.nnz / n_texts + CELL_BYTES * of_labels.shape[1]
        most = int(MOST_BYTES / text_bytes)
        return texts if len(texts) <= most else _drawn(texts, most, of_labels, rng)

    def _solve_on(self, all_texts: HostTexts | DeviceTexts, cluster: int) -> ClusterWeights:
        labels, texts = self._clusters[cluster], self._texts(cluster)
        positives, prior = self._positives(labels, texts), self._prior(labels)
        return all_texts.solve(ClusterProblem(labels, texts, positives, prior), self._config)

    def _positives(self, label_ids: NDArray[np.int64], texts: NDArray[np.int64]) -> Positives:
        """Return the labels of texts, which are sorted."""
        chosen = self._by_label[:, label_ids]
        columns = np.repeat(np.arange(len(label_ids)), np.diff(chosen.indptr))
        rows = np.searchsorted(texts, chosen.indices)
        there = texts[np.minimum(rows, len(texts) - 1)] == chosen.indices
        return Positives(rows[there], columns[there], len(label_ids))

    def _prior(self, label_ids: NDArray[np.int64]) -> Any:
        """Return (F, k) prior weights from the labels' names, CSC; None where they do not count."""
        if self._names is None:
            return None
        return self._names[:, label_ids] * np.float32(self._config.name_weight)

    def _assemble(self, builder: WeightBuilder) -> LinearScorer:
        """Join the weights of all clusters."""
        biases = builder.biases
        if self._groups is not None:
            biases += np.append(self._group_biases, np.float32(0))[self._groups.of].sum(axis=1)
        never = np.setdiff1d(np.arange(len(biases)), self._trained)
        # Below every trained label: without evidence a label without texts must not rank first.
        biases[never] = biases.min()
        return LinearScorer(builder.matrix(), biases, self._groups)


class _UnmatchedTrainer(LinearTrainer):
    """Trains each cluster on its own texts and a random sample, however few labels there are."""

    def _match(self, labels: Any) -> Sequence[NDArray[np.int64]] | None:
        return self._no_texts()


def _side_by_side(left: Any, right: Any) -> Any:
    return hstack([left, right], format="csr")


def _drawn(
    texts: NDArray[np.int64], count: int, of_labels: Any, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return `count` of the texts and enough of each label (texts, labels; CSC), sorted."""
    chosen = [rng.choice(texts, size=count, replace=False)]
    for own in np.split(of_labels.indices, of_labels.indptr[1:-1]):
        chosen.append(rng.choice(own, size=min(LEAST_OWN_TEXTS, len(own)), replace=False))
    return np.unique(np.concatenate(chosen))


def _most_frequent(features: Any, n_columns: int) -> Any:
    """Return the columns that occur in most rows, at most `n_columns`."""
    if features.shape[1] <= n_columns:
        return features
    frequency = np.bincount(features.indices, minlength=features.shape[1])
    columns = np.sort(np.argsort(-frequency, kind="stable")[:n_columns])
    place = np.full(features.shape[1], -1, dtype=np.int32)
    place[columns] = np.arange(n_columns, dtype=np.int32)
    indices, values = GrowingArray(np.int32), GrowingArray(np.float32)
    lengths = [np.zeros(1, dtype=np.int64)]
    for start in range(0, features.shape[0], ROWS_AT_A_TIME):
        bounds = features.indptr[start : start + ROWS_AT_A_TIME + 1]
        entries = slice(bounds[0], bounds[-1])
        found = place[features.indices[entries]]
        kept = found >= 0
        indices.add(found[kept])
        values.add(features.data[entries][kept])
        lengths.append(np.diff(np.append(0, np.cumsum(kept))[bounds - bounds[0]]))
    ends = np.cumsum(np.concatenate(lengths)).astype(features.indptr.dtype)
    return csr_matrix((values.whole(), indices.whole(), ends), (features.shape[0], n_columns))


def _matcher_settings(config: SparseConfig) -> SparseConfig:
    return replace(
        config,
        iterations=min(config.iterations, MATCHER_ITERATIONS),
        name_weight=0.0,
        negatives="matched",
    )


def _random_settings(config: SparseConfig) -> SparseConfig:
    return replace(
        config,
        iterations=min(config.iterations, RANDOM_ITERATIONS),
        sample=RANDOM_SAMPLES * config.sample,
        name_weight=RANDOM_NAMES * config.name_weight,
    )
