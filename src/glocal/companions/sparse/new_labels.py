"""Labels added to a trained sparse model, without changing those it has.

- A label with examples is fitted as in training: its examples against training texts and some
  examples of other new labels, starting from the words of its name. Training texts are a sample
  whose features are stored with the model, or are given.
- Of many examples of a label some are enough (`few_examples`).
- A label without examples is scored by its names (`unseen_labels`).
- Both take the scaling from margins to log-odds that was found in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix, diags, hstack, vstack

from glocal.companions.sparse.host_solver import solved
from glocal.companions.sparse.label_profiles import label_profiles
from glocal.companions.sparse.solver import Positives
from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.threads import change_threads, ordered_map
from glocal.companions.sparse.training_memory import TrainingMemory
from glocal.companions.sparse.unseen_labels import name_scorer
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig

_BLOCK = 32  # labels that are solved together
_OTHER_EXAMPLES = 1000  # examples of other new labels that a label is fitted against


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
    n_texts: NDArray[np.int64],
    bags: bool = False,
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
        n_texts: (k,) texts of each label that are known, of which the examples are some.
        bags: Whether embedding bags compute the products.
    """
    texts, scaling = memory.sample.features, memory.margins
    n_examples = np.bincount(gold.indices, minlength=len(names))
    seen, unseen = np.flatnonzero(n_examples), np.flatnonzero(n_examples == 0)
    biases = np.zeros(len(names), np.float32)
    parts: list[Any] = []
    matcher = None
    if len(seen):
        positive = gold.tocsc()[:, seen]
        others = np.random.default_rng(0).permutation(gold.shape[0])[:_OTHER_EXAMPLES]
        prior = vectoriser.transform([names[label] for label in seen.tolist()]).T.tocsc()
        prior = prior * np.float32(config.name_weight)

        def solve(block: slice) -> LinearScorer:
            rows = np.union1d(others, positive[:, block].tocsr().nonzero()[0])
            shown = positive[rows][:, block]
            return _solved(examples[rows], texts, shown, prior[:, block], config, bags=bags)

        blocks = [slice(start, start + _BLOCK) for start in range(0, len(seen), _BLOCK)]
        work = ordered_map(solve, blocks, threads=change_threads())
        for block, found in zip(blocks, work, strict=True):
            counts = n_texts[seen[block]]
            weights = found.weights @ diags(scaling.slopes(counts))
            likenesses = scaling.likenesses(counts)
            if likenesses.any():
                means = label_profiles(
                    examples, positive[:, block].tocsr(), threshold=0.0, threads=1
                )
                weights = weights + means @ diags(likenesses)
            parts.append(weights)
            biases[seen[block]] = scaling.slopes(counts) * found.biases + scaling.constants(counts)
    if len(unseen):
        own = [all_names[label] for label in unseen.tolist()]
        named = name_scorer(vectoriser, own, memory.names, texts, n_texts=memory.n_texts)
        parts.append(named.weights)
        biases[unseen] = named.biases
        matcher = named.names and replace(named.names, labels=unseen[named.names.labels])
    order = np.argsort(np.concatenate([seen, unseen]))
    joined = csc_matrix(hstack(parts, format="csc"))[:, order]
    return LinearScorer(joined.tocsr().astype(np.float32), biases, names=matcher)


def few_examples(gold: Any, most: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return at most a given number of examples of each label, drawn at random, in order.

    Args:
        gold: (n, k) CSR matrix of the labels of examples.
        most: Examples of each label.
        rng: Random numbers.
    """
    taken = np.zeros(gold.shape[1], dtype=np.int64)
    chosen = []
    for row in rng.permutation(gold.shape[0]).tolist():
        labels = gold.indices[gold.indptr[row] : gold.indptr[row + 1]]
        if len(labels) and taken[labels].min() < most:
            taken[labels] += 1
            chosen.append(row)
    return np.sort(np.array(chosen, dtype=np.int64))


def _solved(
    examples: Any, sample: Any, positives: Any, prior: Any, config: SparseConfig, *, bags: bool
) -> LinearScorer:
    """Return the scorers of a block of labels, small weights dropped.

    Args:
        examples: (n, F) CSR matrix of examples.
        sample: (m, F) CSR matrix of training texts, which have none of the labels.
        positives: (n, k) matrix of the labels of examples.
        prior: (F, k) CSC matrix of the weights to start from.
        config: The settings of the training.
        bags: Whether embedding bags compute the products.
    """
    texts, entries = vstack([examples, sample]).tocsr(), positives.tocoo()
    of_examples = Positives(entries.row, entries.col, positives.shape[1])
    features, labels, weights, biases = solved(texts, of_examples, prior, config, bags=bags)
    return LinearScorer(csr_matrix((weights, (features, labels)), prior.shape), biases)
