"""Clusters of labels that are solved are kept on disk, so that a fit that is killed can go on.

A file has the weights of consecutive clusters: `1-64-96.npz` those of the clusters 64 to 95 of the
second model of a fit (matchers come before the labels). The name of its folder stands for all that
they depend on, so what is there is right. The clusters of a damaged file are solved again.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glocal.companions.sparse.cluster_solvers import ClusterSolvers, Solve
from glocal.companions.sparse.cluster_weights import ClusterWeights
from glocal.data.atomic import atomic_write

logger = logging.getLogger(__name__)

SECONDS = 10.0  # of work that a kill may cost

_OF_LABELS, _OF_WEIGHTS = ("labels", "biases"), ("features", "columns", "values")
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


class KeptClusters(ClusterSolvers):
    """Solves clusters in this process and keeps what is solved.

    Args:
        folder: Where to keep it; created when there is something to keep.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models = itertools.count()
        self._has_room = True

    def solve(self, solve: Solve, n_clusters: int) -> Iterator[ClusterWeights]:
        """Yield the weights of all clusters, in order; those that are kept are not solved again."""
        model, done = next(self._models), 0
        while found := self._read(model, done):
            yield from found
            done += len(found)
        if done:
            logger.info("words: %d of %d label groups are kept from before", done, n_clusters)
        unwritten: list[ClusterWeights] = []
        since = time.monotonic()
        for weights in solve(range(done, n_clusters)):
            unwritten.append(weights)
            if time.monotonic() - since >= SECONDS:
                self._write(model, done, unwritten)
                done += len(unwritten)
                unwritten, since = [], time.monotonic()
            yield weights

    def remove(self) -> None:
        """Remove what is kept."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, model: int, first: int) -> list[ClusterWeights]:
        """Return the clusters of a file that starts with this one; none without a sound file."""
        for path in sorted(self._folder.glob(f"{model}-{first}-*.npz")):
            try:
                with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                    parts = {
                        name: np.split(file[name], np.cumsum(file[f"n_{of}"])[:-1])
                        for of, names in (("labels", _OF_LABELS), ("weights", _OF_WEIGHTS))
                        for name in names
                    }
            except _UNREADABLE:
                continue
            return [
                ClusterWeights(**dict(zip(parts, of_cluster, strict=True)))
                for of_cluster in zip(*parts.values(), strict=True)
            ]
        return []

    def _write(self, model: int, first: int, clusters: Sequence[ClusterWeights]) -> None:
        if not self._has_room:
            return
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(cluster, name) for cluster in clusters])
            for name in (*_OF_LABELS, *_OF_WEIGHTS)
        }
        arrays["n_labels"] = np.array([len(cluster.labels) for cluster in clusters])
        arrays["n_weights"] = np.array([len(cluster.values) for cluster in clusters])
        path = self._folder / f"{model}-{first}-{first + len(clusters)}.npz"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                np.savez(file, **arrays)
        except OSError as error:
            self._has_room = False
            reason = error.strerror or error
            logger.warning(
                "%s: label groups cannot be kept (%s); if this training is killed, it has to start "
                "again",
                self._folder,
                reason,
            )
