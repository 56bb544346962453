"""Tokens and models of words, computed on a Ray cluster whose machines share the cache.

Batches of texts are tokenised by tasks of Ray, which repeats those of a lost machine; this process
writes the tokens to the cache, in order. Meanwhile another task fits the model of words, whose
clusters of labels are solved by tasks too.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from glocal.cluster.ray_cluster import connected
from glocal.companions.sparse.cluster_solvers import ClusterSolvers, Solve
from glocal.companions.sparse.cluster_weights import ClusterWeights
from glocal.data.cache import cache_dir
from glocal.data.tokens import TextTokenizer
from glocal.errors import GlocalError
from glocal.progress import Progress
from glocal.train.prepare import Preparation, Prepared, n_texts

_CLUSTERS = 8  # clusters of labels that a task solves


def prepare_on_ray(
    preparation: Preparation,
    *,
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Fill the cache with what a training of these texts needs.

    Args:
        preparation: The texts and the recipe.
        address: The cluster; None starts one on this machine.
        workers: Batches of texts that are tokenised at the same time; by default one for each CPU.
        progress: Receives the number of texts that are tokenised.

    Raises:
        ConfigError: The recipe breaks a rule, or the cluster cannot be reached.
        DataError: The cache cannot be written to.
    """
    found = preparation.checked()
    with connected(address) as ray:
        at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        words = ray.remote(_fit_words).remote(ray.put(found), str(cache_dir()), at_once)
        tokens = found.tokens(RayTokens(ray, at_once), progress)
        problem, labels, fitted = ray.get(words)
    if problem:
        raise GlocalError(problem)
    return Prepared(n_texts(found), labels, tokens, fitted)


class RayTokens:
    """Tokenises batches of texts by tasks of Ray; see `glocal.data.tokens.Encode`.

    Args:
        ray: The module, connected to a cluster.
        at_once: Tasks that run at the same time.
    """

    def __init__(self, ray: Any, at_once: int) -> None:
        self._ray, self._at_once = ray, at_once

    def __call__(
        self, tokenizer: TextTokenizer, batches: Iterable[list[str]], max_length: int
    ) -> Iterator[list[list[int]]]:
        """Yield the token ids of each batch, in order."""
        kept, encode = self._ray.put(tokenizer), self._ray.remote(_encode)
        tasks = (encode.remote(kept, texts, max_length) for texts in batches)
        return _in_order(self._ray, tasks, self._at_once)


class RaySolvers(ClusterSolvers):
    """Solves clusters of labels by tasks of Ray.

    Args:
        ray: The module, connected to a cluster.
        at_once: Tasks that run at the same time.
    """

    def __init__(self, ray: Any, at_once: int) -> None:
        self._ray, self._at_once = ray, at_once

    def solve(self, solve: Solve, n_clusters: int) -> Iterator[ClusterWeights]:
        """Yield the weights of all clusters, in order."""
        kept, solved = self._ray.put(solve), self._ray.remote(_solve)
        starts = range(0, n_clusters, _CLUSTERS)
        parts = (range(start, min(start + _CLUSTERS, n_clusters)) for start in starts)
        tasks = (solved.remote(kept, clusters) for clusters in parts)
        return itertools.chain.from_iterable(_in_order(self._ray, tasks, self._at_once))


def _in_order(ray: Any, tasks: Iterable[Any], at_once: int) -> Iterator[Any]:
    """Yield the results of tasks in their order; a task starts when it is taken."""
    running = deque[Any]()
    for task in tasks:
        running.append(task)
        if len(running) == 2 * at_once:  # half of them wait for a worker
            yield ray.get(running.popleft())
    while running:
        yield ray.get(running.popleft())


def _solve(solve: Solve, clusters: range) -> list[ClusterWeights]:
    return list(solve(clusters))


def _encode(tokenizer: TextTokenizer, texts: list[str], max_length: int) -> list[list[int]]:
    return tokenizer.encode_batch(texts, max_length)


def _fit_words(preparation: Preparation, cache: str, at_once: int) -> tuple[str, int, bool]:
    """Fit the models of words; return a problem, if any, the number of labels, and whether any."""
    import ray

    os.environ["GLOCAL_CACHE"] = cache
    try:
        return "", *preparation.words(solvers=RaySolvers(ray, at_once))
    except GlocalError as error:
        return str(error), 0, False
