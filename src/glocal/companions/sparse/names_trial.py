"""Whether label names help labels that have training texts, tried on held-out texts.

A name is a good start for a label where texts say it, as titles and abstracts do. It harms where it
tells less than the label's texts: in a classification whose descriptions are among the training
texts it makes the label expect these very words. Two models of mean texts, with names and without,
tag the held-out texts: a part of a second, where two whole models would take minutes. Texts that
are the name of one of their labels say nothing about other texts and do not take part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels

NAME_SHARE = np.float32(0.2)  # length of a name beside a mean text of length one
# Names must find so many times the labels that mean texts find. Measured: YSO-Finna 1.14, TIB-GND
# 1.05, EURLEX57K 1.05, ICD-10-CM 0.94, its categories 0.95; names of other labels 0.999 to 1.004.
NAMES_HELP = 1.01
FEWEST_TEXTS = 20  # with fewer, names are used
_SAME = 0.999  # cosine of texts of the same words
_K = 5


def helpful_names(
    names: Any, mean_texts: Callable[[], Any], features: Any, gold: Any, *, threads: int = 1
) -> Any | None:
    """Return the names if they help, otherwise None.

    Args:
        names: (F, L) CSC matrix of features of the labels' names, or None.
        mean_texts: Returns the mean text of each label, (F, L) CSR matrix (`label_profiles`).
        features: (n, F) CSR matrix of texts that are not part of them.
        gold: (n, ≥ L) CSR matrix of their labels.
        threads: Number of threads.
    """
    if names is None or not names.nnz:
        return None
    tried = _other_texts(names, features, gold)
    if len(tried) < FEWEST_TEXTS:
        return names
    features, gold, profiles = features[tried], gold[tried], mean_texts()
    with_names = profiles + names.tocsr() * NAME_SHARE
    before, after = (
        _found(weights, features, gold, threads=threads) for weights in (profiles, with_names)
    )
    return names if after >= NAMES_HELP * before else None


def _other_texts(names: Any, features: Any, gold: Any) -> NDArray[np.int64]:
    """Return the texts that do not have the words of the name of one of their labels."""
    rows = np.repeat(np.arange(gold.shape[0]), np.diff(gold.indptr))
    products = features[rows].multiply(names[:, gold.indices].T.tocsr())
    same = np.asarray(products.sum(axis=1)).ravel() > _SAME
    return np.setdiff1d(np.arange(gold.shape[0]), rows[same])


def _found(weights: Any, features: Any, gold: Any, *, threads: int) -> int:
    """Return how many labels of texts are among the five best."""
    scorer = LinearScorer(weights, np.zeros(weights.shape[1], np.float32))
    best, _ = top_labels(scorer, features, min(_K, weights.shape[1]), threads=threads)
    rows = np.repeat(np.arange(len(best)), best.shape[1])
    return int(np.asarray(gold[rows, best.ravel()]).sum())
