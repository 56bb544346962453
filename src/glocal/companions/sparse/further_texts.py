"""Further texts learnt by a trained sparse model, without training it again.

- Two kinds of labels learn: those that the texts have, and those that the model ranks first where
  they do not belong. All others stay as they are.
- A label starts from its weights and is held near them by the solver's regulariser, so it keeps
  what it knows. Replayed training texts take part, so that it also keeps its place among others.
- Scores are near their solution from the start: few steps suffice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.bag_products import bag_product, text_products
from glocal.companions.sparse.host_solver import large_entries
from glocal.companions.sparse.solver import START_BIAS, Positives, solve_block
from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels
from glocal.companions.sparse.threads import ordered_map
from glocal.companions.sparse.training_memory import LabelledTexts, Scaling, frequency_terms
from glocal.config import SparseConfig

REPLAYED = 1000  # training texts that take part, or as many as there are further texts
_RIVALS = 5  # best labels of a text that learn where they do not belong
_ITERATIONS = 6
_SMALL = 0.2  # changes of weights below this share of the threshold are dropped


def learn_texts(
    scorer: LinearScorer,
    scaling: Scaling,
    config: SparseConfig,
    *,
    texts: LabelledTexts,
    replay: LabelledTexts,
    counts: tuple[NDArray[np.int64], NDArray[np.int64]],
    threads: int = 1,
    bags: bool = False,
) -> LinearScorer:
    """Return the scorer after it has learnt further texts.

    Args:
        scorer: The trained scorer.
        scaling: Scaling of its margins to log-odds.
        config: The settings it was trained with.
        texts: The further texts.
        replay: Texts it was trained on.
        counts: (L,) training texts of each label before, and with the further texts.
        threads: Number of threads.
        bags: Whether embedding bags compute the products.
    """
    chosen = _labels_that_learn(scorer, scaling, texts, threads=threads)
    lesson = texts.joined(replay)
    work = _Lesson(scorer, scaling, config, lesson, chosen=chosen, counts=counts[0], bags=bags)
    blocks = [
        chosen[start : start + config.cluster_size]
        for start in range(0, len(chosen), config.cluster_size)
    ]
    changes = list(ordered_map(work.solve, blocks, threads=threads))
    weights = scorer.weights + _joined([change for change, _ in changes], scorer.weights.shape)
    weights.sort_indices()
    slopes = scaling.slopes(counts[0])  # those its weights have
    often = [frequency_terms(some) @ np.array(scaling.frequency) for some in counts]
    biases = scorer.biases.copy()
    for block, (_, change) in zip(blocks, changes, strict=True):
        biases[block] += slopes[block] * change + (often[1] - often[0])[block]
    return replace(scorer, weights=weights, biases=biases)


def _labels_that_learn(
    scorer: LinearScorer, scaling: Scaling, texts: LabelledTexts, *, threads: int
) -> NDArray[np.int64]:
    best, scores = top_labels(scorer, texts.features, _RIVALS, threads=threads)
    # A text that a label keeps at a distance of more than one from itself costs nothing.
    near = scores > scaling.shift - scaling.slope
    return np.union1d(best[near], texts.gold.indices).astype(np.int64)


class _Lesson:
    """Fits the changes of labels, block by block."""

    def __init__(
        self,
        scorer: LinearScorer,
        scaling: Scaling,
        config: SparseConfig,
        texts: LabelledTexts,
        *,
        chosen: NDArray[np.int64],
        counts: NDArray[np.int64],
        bags: bool,
    ) -> None:
        self._scorer, self._config, self._bags = scorer, config, bags
        self._slopes, self._constants = scaling.slopes(counts), scaling.constants(counts)
        self._features, self._by_label = texts.features, texts.gold.tocsc()
        self._products = text_products(texts.features, bags=bags)
        by_feature = self._products.by_feature
        self._used = np.flatnonzero(np.diff(by_feature.indptr))
        self._by_feature = by_feature[self._used]
        self._weights = scorer.weights[self._used][:, chosen].tocsc()
        self._within = texts.features[:, self._used]
        self._place = {label: place for place, label in enumerate(chosen.tolist())}
        self._groups = None if scorer.groups is None else scorer.groups.by_group(texts.features)

    def solve(self, block: NDArray[np.int64]) -> tuple[Any, NDArray[np.float32]]:
        """Return the changes of a block of labels: weights as (F, L) COO parts, and biases."""
        positives = self._by_label[:, block].tocoo()
        coefficients, biases = solve_block(
            self._products,
            Positives(positives.row, positives.col, len(block)),
            cost=self._config.cost,
            iterations=min(_ITERATIONS, self._config.iterations),
            start_scores=self._margins(block) - np.float32(START_BIAS),
        )
        own = self._by_feature
        change = bag_product(own, coefficients) if self._bags else own @ coefficients
        row, column, values = large_entries(change, _SMALL * self._config.threshold)
        values *= self._slopes[block[column]]
        parts = values, self._used[row], block[column]
        return parts, biases - np.float32(START_BIAS)

    def _margins(self, block: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return (n, k) the margins of labels as they are."""
        places = [self._place[label] for label in block.tolist()]
        scores: NDArray[np.float32] = (self._within @ self._weights[:, places]).toarray()
        scores += self._scorer.biases[block]
        if self._groups is not None and self._scorer.groups is not None:
            scores += self._groups[:, self._scorer.groups.of[block]].sum(axis=2)
        if self._scorer.names is not None:
            scores += self._scorer.names.scores_of(block, self._features)
        scores -= self._constants[block]
        scores /= self._slopes[block]
        return scores


def _joined(changes: list[Any], shape: tuple[int, int]) -> Any:
    """Return the CSR matrix of the changes of all blocks."""
    from scipy.sparse import csr_matrix

    nothing = (np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64))
    values, rows, columns = (
        np.concatenate(part) for part in zip(nothing, *changes, strict=True)
    )  # fmt: skip
    return csr_matrix((values, (rows, columns)), shape, dtype=np.float32)
