"""Labels added to a trained sparse model, without changing those it has.

- A label with examples is fitted as in training: its examples against the examples of the other new
  labels and training texts, starting from the words of its name. Training texts are a sample whose
  features are stored with the model, or are given.
- A label without examples is scored by its names (`unseen_labels`).
- Both take the scaling from margins to log-odds that was found in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.label_profiles import label_profiles
from glocal.companions.sparse.platt import frequency_terms
from glocal.companions.sparse.solver import Positives, TextProducts, solve_block
from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.threads import n_threads, ordered_map
from glocal.companions.sparse.training_memory import TrainingMemory
from glocal.companions.sparse.unseen_labels import name_scorer
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig

_SMALLEST_BLOCK = 8  # labels: reading the texts takes the same time for fewer


def sample_rows(n_texts: int, size: int, *, seed: int) -> NDArray[np.int64]:
    """Return positions of the texts whose features are kept, sorted."""
    chosen = np.random.default_rng([seed, 3]).permutation(n_texts)[:size]
    return np.sort(chosen).astype(np.int64)


def fit_new_labels(
    vectoriser: Vectoriser,
    memory: TrainingMemory,
    config: SparseConfig,
    *,
    names: Sequence[str],
    all_names: Sequence[Sequence[str]],
    examples: Any,
    gold: Any,
) -> LinearScorer:
    """Fit the scorers of new labels.

    Args:
        vectoriser: Turns names into features.
        memory: What is known of the model's training, and training texts.
        config: The settings it was trained with.
        names: Name of each label, empty for none.
        all_names: All names of each label.
        examples: (n, F) CSR matrix of example texts.
        gold: (n, k) CSR matrix of the new labels they have.
    """
    from scipy.sparse import csc_matrix, hstack, vstack

    texts, scaling = memory.sample.features, memory.margins
    n_examples = np.bincount(gold.indices, minlength=len(names))
    seen, unseen = np.flatnonzero(n_examples), np.flatnonzero(n_examples == 0)
    biases = np.zeros(len(names), np.float32)
    parts: list[Any] = []
    matcher = None
    if len(seen):
        every = _Texts(vstack([examples, texts]).tocsr())
        positive = gold.tocsc()[:, seen]
        prior = vectoriser.transform([names[label] for label in seen.tolist()]).T.tocsc()
        prior = prior * np.float32(config.name_weight)

        def solve(block: slice) -> LinearScorer:
            return _solved(every, positive[:, block], prior[:, block].tocsr(), config)

        threads = n_threads(0)
        blocks = _blocks(len(seen), most=config.cluster_size, threads=threads)
        for block, found in zip(blocks, ordered_map(solve, blocks, threads=threads), strict=True):
            weights = found.weights * np.float32(scaling.slope)
            if scaling.likeness:
                means = label_profiles(
                    examples, positive[:, block].tocsr(), threshold=0.0, threads=1
                )
                weights = weights + means * np.float32(scaling.likeness)
            parts.append(weights)
            often = frequency_terms(n_examples[seen[block]]) @ np.array(scaling.frequency)
            biases[seen[block]] = scaling.slope * found.biases + scaling.shift + often
    if len(unseen):
        own = [all_names[label] for label in unseen.tolist()]
        named = name_scorer(vectoriser, own, memory.names, texts, n_texts=memory.n_texts)
        parts.append(named.weights)
        biases[unseen] = named.biases
        matcher = named.names and replace(named.names, labels=unseen[named.names.labels])
    order = np.argsort(np.concatenate([seen, unseen]))
    joined = csc_matrix(hstack(parts, format="csc"))[:, order]
    return LinearScorer(joined.tocsr().astype(np.float32), biases, names=matcher)


def _blocks(n_labels: int, *, most: int, threads: int) -> list[slice]:
    """Return blocks of labels that are solved together, enough of them for all threads."""
    size = min(most, max(_SMALLEST_BLOCK, -(-n_labels // threads)))
    return [slice(start, start + size) for start in range(0, n_labels, size)]


class _Texts:
    """Texts on which blocks of labels are fitted one after another."""

    def __init__(self, features: Any) -> None:
        self.features, self.by_feature = features, features.T.tocsr()
        self.products = TextProducts(features)


def _solved(texts: _Texts, positives: Any, prior: Any, config: SparseConfig) -> LinearScorer:
    """Return the scorers of a block of labels, small weights dropped."""
    from scipy.sparse import csr_matrix

    entries = positives.tocoo()
    coefficients, biases = solve_block(
        texts.products,
        Positives(entries.row, entries.col, positives.shape[1]),
        cost=config.cost,
        iterations=config.iterations,
        start_scores=(texts.features @ prior).toarray(),
    )
    used = np.flatnonzero((np.diff(texts.by_feature.indptr) > 0) | (np.diff(prior.indptr) > 0))
    weights = texts.by_feature[used] @ coefficients + prior[used].toarray()
    row, column = np.nonzero(np.abs(weights) >= config.threshold)
    kept = csr_matrix((weights[row, column], (used[row], column)), prior.shape)
    return LinearScorer(kept, biases)
