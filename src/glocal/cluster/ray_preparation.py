"""Tokens and models of words, computed on a Ray cluster whose machines share the cache.

Batches of texts are tokenised by tasks of Ray, which repeats those of a lost machine, while another
task fits the model of words; this process writes the tokens to the cache, in order.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from glocal.cluster.ray_cluster import connected
from glocal.data.cache import cache_dir
from glocal.data.tokens import TextTokenizer
from glocal.errors import GlocalError
from glocal.progress import Progress
from glocal.train.prepare import Preparation, Prepared, n_texts


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
        words = ray.remote(_fit_words).remote(ray.put(found), str(cache_dir()))
        at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
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
        self._ray, self._most = ray, 2 * at_once  # half of them wait for a worker

    def __call__(
        self, tokenizer: TextTokenizer, batches: Iterable[list[str]], max_length: int
    ) -> Iterator[list[list[int]]]:
        """Yield the token ids of each batch, in order."""
        ray, running = self._ray, deque[Any]()
        kept, encode = ray.put(tokenizer), ray.remote(_encode)
        for texts in batches:
            running.append(encode.remote(kept, texts, max_length))
            if len(running) == self._most:
                yield ray.get(running.popleft())
        while running:
            yield ray.get(running.popleft())


def _encode(tokenizer: TextTokenizer, texts: list[str], max_length: int) -> list[list[int]]:
    return tokenizer.encode_batch(texts, max_length)


def _fit_words(preparation: Preparation, cache: str) -> tuple[str, int, bool]:
    """Fit the models of words; return a problem, if any, the number of labels, and whether any."""
    os.environ["GLOCAL_CACHE"] = cache
    try:
        return "", *preparation.words()
    except GlocalError as error:
        return str(error), 0, False
