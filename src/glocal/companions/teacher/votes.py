"""Scopes: the labels that the neighbours of a text vote for.

A neighbour's vote is its share of the neighbours' similarities (raised to a power, so that the
nearest count more) and goes to each of its labels. A label's weight is the sum of its votes: 1 if
every neighbour has it. The parents of labels voted for are ranked below them, by the votes of their
children, with weight 0 unless they have votes themselves.
Everything is sparse: no matrix of texts by labels is dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats32, Ints


@dataclass(frozen=True)
class Scopes:
    """The labels a teacher suggests for each of n texts.

    Args:
        labels: (n, S) int32, places in the teacher's `KnownLabels`, best first; -1 for none.
        weights: (n, S) float32, the vote for each; 0 for a parent without votes of its own, and
            where there is no label.
    """

    labels: NDArray[np.int32]
    weights: Floats32

    def __len__(self) -> int:
        return len(self.labels)


def vote(rows: Ints, similarities: Floats32, label_matrix: Any, *, sharpness: float = 1.0) -> Any:
    """Return the votes for the labels of each text.

    Args:
        rows: (n, k) neighbours, -1 for none.
        similarities: (n, k) above 0 for each neighbour.
        label_matrix: CSR (N, L) of ones, the labels of the texts in the index.
        sharpness: Exponent of the similarities.

    Returns:
        A float64 CSR matrix (n, L).
    """
    from scipy.sparse import csr_matrix

    there = rows >= 0
    weights = np.where(there, similarities, 0).astype(np.float64) ** sharpness
    total = weights.sum(axis=1, keepdims=True)
    shares = weights / np.where(total > 0, total, 1)
    offsets = np.append(0, np.cumsum(there.sum(axis=1)))
    shape = (len(rows), label_matrix.shape[0])
    return csr_matrix((shares[there], rows[there], offsets), shape=shape) @ label_matrix


def scopes_from_neighbours(
    rows: Ints,
    similarities: Floats32,
    label_matrix: Any,
    *,
    parent_matrix: Any = None,
    size: int,
    sharpness: float = 1.0,
) -> Scopes:
    """Return the scope of each text.

    Args:
        rows: (n, k) neighbours, -1 for none.
        similarities: (n, k) above 0 for each neighbour.
        label_matrix: CSR (N, L) of ones, the labels of the texts in the index.
        parent_matrix: CSR (L, L) of ones, the parents of each label; None to add no parents.
        size: Maximum number of labels in a scope.
        sharpness: Exponent of the similarities.
    """
    votes = vote(rows, similarities, label_matrix, sharpness=sharpness).tocoo()
    texts, places, weights = votes.row, votes.col, votes.data
    support = np.full(len(weights), np.inf)  # its own votes rank before any support
    if parent_matrix is not None:
        above = (votes.tocsr() @ parent_matrix).tocoo()
        texts, places = np.append(texts, above.row), np.append(places, above.col)
        weights = np.append(weights, np.zeros(len(above.data)))
        support = np.append(support, above.data)
    # By weight, then by support, then by place; each once.
    order = np.lexsort((places, -support, -weights, texts))
    texts, places, weights = texts[order], places[order], weights[order]
    # A label with votes that is also a parent occurs twice; its votes come first.
    _, first = np.unique(np.stack([texts, places]), axis=1, return_index=True)
    kept = np.sort(first)
    texts, places, weights = texts[kept], places[kept], weights[kept]
    rank = np.arange(len(texts)) - np.searchsorted(texts, texts)
    inside = rank < size
    labels = np.full((len(rows), size), -1, dtype=np.int32)
    shares = np.zeros((len(rows), size), dtype=np.float32)
    labels[texts[inside], rank[inside]] = places[inside]
    shares[texts[inside], rank[inside]] = weights[inside]
    return Scopes(labels, shares)
