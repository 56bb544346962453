"""Platt scaling, which turns margins into probabilities: p = σ(slope · margin + shift).

- Fitted on the best labels of held-out texts, about as many as a user looks at: probabilities are
  read there, and a margin that is the best of thousands is less reliable.
- Slope and shift are folded into weights and biases: a score is a log-odds and still a sum of
  parts.
- Held-out texts are chosen so that every label keeps at least one training text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer, top_labels
from glocal.log_odds import sigmoid

BEST_LABELS = 20
HELD_OUT_SHARE = 50
MOST_HELD_OUT = 2000
FEWEST_HELD_OUT = 100
_STEPS = 50
# A weak prior on the slope: a handful of texts must not make it infinite.
_USUAL_SLOPE, _PULL = 4.0, 0.05


def held_out_texts(labels: Any, *, seed: int) -> NDArray[np.int64]:
    """Choose texts to calibrate on: one in fifty, a larger share of small sets, at most a tenth.

    Args:
        labels: (n, L) CSR matrix of ones.
        seed: Random seed.

    Returns:
        Their positions, sorted. Each of their labels has at least one text that is not chosen.
    """
    n_texts = labels.shape[0]
    wanted = min(MOST_HELD_OUT, max(n_texts // HELD_OUT_SHARE, min(FEWEST_HELD_OUT, n_texts // 10)))
    left = np.bincount(labels.indices, minlength=labels.shape[1])
    chosen: list[int] = []
    for text in np.random.default_rng([seed, 1]).permutation(n_texts).tolist():
        if len(chosen) == wanted:
            break
        own = labels.indices[labels.indptr[text] : labels.indptr[text + 1]]
        if len(own) and left[own].min() > 1:
            left[own] -= 1
            chosen.append(text)
    return np.sort(np.array(chosen, dtype=np.int64))


def calibrate(scorer: LinearScorer, features: Any, gold: Any, *, threads: int) -> LinearScorer:
    """Rescale a scorer so that its margins become log-odds.

    What the labels' groups add has a slope of its own: how far a group tells its labels differs
    from one corpus to the next.

    Args:
        scorer: The trained weights.
        features: (n, F) CSR matrix of held-out texts.
        gold: (n, ≥ L) CSR matrix of their labels.
        threads: Number of threads.
    """
    best, margins = top_labels(scorer, features, BEST_LABELS, threads=threads)
    there = best >= 0
    rows, labels = np.nonzero(there)[0], best[there]
    hits = np.asarray(gold[rows, labels]).ravel() > 0 if len(rows) else np.zeros(0, dtype=bool)
    if scorer.groups is None:
        slope, shift = fit_scaling(margins[there], hits)
        groups = None
    else:
        shared = _group_margins(scorer.groups, features, rows, labels)
        own = margins[there] - shared
        slope, group_slope, shift = _fit(np.stack([own, shared], axis=1), hits)
        groups = replace(scorer.groups, weights=scorer.groups.weights * np.float32(group_slope))
    weights = scorer.weights.copy()
    weights.data *= np.float32(slope)
    biases = np.float32(slope) * scorer.biases + np.float32(shift)
    return LinearScorer(weights, biases, groups)


def _group_margins(
    groups: LabelGroups, features: Any, rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return what the groups add to the scores of (text, label) pairs."""
    by_group: NDArray[np.float32] = (features @ groups.weights).toarray()
    group = groups.of[labels]
    return np.where(group >= 0, by_group[rows, np.maximum(group, 0)], np.float32(0))


def fit_scaling(margins: NDArray[np.floating[Any]], gold: NDArray[np.bool_]) -> tuple[float, float]:
    """Fit slope and shift by maximum likelihood.

    Args:
        margins: Margins of (text, label) pairs.
        gold: Whether each text has the label.

    Returns:
        (slope, shift); the slope is positive.
    """
    slope, shift = _fit(margins[:, None], gold)
    return slope, shift


def _fit(parts: NDArray[np.floating[Any]], gold: NDArray[np.bool_]) -> list[float]:
    """Fit a positive slope for each column of margins, and a shift, by Newton's method."""
    values = np.concatenate([parts, np.ones((len(parts), 1))], axis=1).astype(np.float64)
    usual = np.append(np.full(parts.shape[1], _USUAL_SLOPE), 0.0)
    lowest = np.append(np.full(parts.shape[1], 0.1), -np.inf)
    found = usual.copy()
    for _ in range(_STEPS):
        probability = sigmoid(values @ found)
        gradient = values.T @ (probability - gold) + _PULL * (found - usual)
        spread = probability * (1 - probability)
        hessian = (values * spread[:, None]).T @ values + _PULL * np.eye(len(usual))
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        found = np.maximum(lowest, found - step)
        if np.abs(step).max() < 1e-6:
            break
    return [float(value) for value in found]
