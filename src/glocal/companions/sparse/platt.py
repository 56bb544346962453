"""Platt scaling, which turns margins into probabilities: p = σ(slope · margin + shift).

- Fitted on the best labels of held-out texts, about as many as a user looks at: probabilities are
  read there, and a margin that is the best of thousands is less reliable.
- Slope and shift are folded into weights and biases: a score is a log-odds and still a sum of
  parts.
- Held-out texts are chosen so that every label keeps at least one training text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer, top_labels
from glocal.companions.sparse.text_votes import TextVotes
from glocal.companions.sparse.training_memory import Scaling
from glocal.log_odds import sigmoid

BEST_LABELS = 20
HELD_OUT_SHARE = 50
MOST_HELD_OUT = 2000
FEWEST_HELD_OUT = 100
_STEPS = 50
# A weak prior on the slope: a handful of texts must not make it infinite.
_USUAL_SLOPE, _PULL, _LEAST_SLOPE = 4.0, 0.05, 0.1
# A stronger one on the terms of a label's frequency, which are zero without evidence.
_FREE_PULL = 1.0
FEWEST_TEXTS = 2  # of a label in the fit; rarer labels are treated alike
_CHUNK_PAIRS = 4096
# Votes of similar texts are used if they find so many times as many labels. Measured: 1.05 with
# 588,000 titles, which often repeat each other; 1.00 with 60,000.
VOTES_HELP = 1.02
_LOOKED_AT = 5


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


@dataclass(frozen=True)
class LabelEvidence:
    """Facts about labels in addition to their trained weights.

    Args:
        profiles: (F, L) float32 CSR matrix, the mean text of each label (`label_profiles`).
        counts: (L,) training texts of each label.
        votes: The training texts, whose votes are used if they help; None without.
    """

    profiles: Any
    counts: NDArray[np.int64]
    votes: TextVotes | None = None


def frequency_terms(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (L, 2) the logarithm of each label's texts and its square."""
    logs = np.log(np.maximum(counts, FEWEST_TEXTS))
    return np.stack([logs, logs**2], axis=1)


def calibrate(
    scorer: LinearScorer,
    features: Any,
    gold: Any,
    *,
    evidence: LabelEvidence | None = None,
    threads: int,
) -> tuple[LinearScorer, Scaling]:
    """Rescale a scorer so that its margins become log-odds.

    Each part of a score has a slope of its own, as what it tells differs from one corpus to the
    next: the label's weights, each level of its groups, the likeness to its mean text. Labels
    trained against a sample of texts are scored too high the more frequent they are; the logarithm
    of a label's texts and its square correct this. Votes of similar texts are added if with them at
    least `VOTES_HELP` times as many labels of the held-out texts are among the best five.

    Args:
        scorer: The trained weights, which are rescaled where they are, to save memory.
        features: (n, F) CSR matrix of held-out texts.
        gold: (n, ≥ L) CSR matrix of their labels.
        evidence: Mean texts (rescaled where they are, too) and frequencies of the labels; without
            it only margins are rescaled.
        threads: Number of threads.

    Returns:
        The scorer, and the scaling of the labels' own weights.
    """
    best, margins = top_labels(scorer, features, BEST_LABELS, threads=threads)
    there = best >= 0
    if evidence is not None:
        # No held-out text has a label whose only text was trained on: such labels teach nothing.
        there &= evidence.counts[best] >= FEWEST_TEXTS
    rows, labels = np.nonzero(there)[0], best[there]
    hits = np.asarray(gold[rows, labels]).ravel() > 0 if len(rows) else np.zeros(0, dtype=bool)
    shared = _group_margins(scorer.groups, features, rows, labels)
    parts = [margins[there] - shared.sum(axis=1), *shared.T]
    if evidence is None:
        found = _fit(np.stack(parts, axis=1), hits)
        return _rescaled(scorer, found), Scaling(found.slopes[0], found.shift)
    parts.append(_margins(evidence.profiles, features, rows, labels))
    often = frequency_terms(evidence.counts)[labels]
    found = _fit(np.stack(parts, axis=1), hits, often)
    votes = None
    if evidence.votes is not None and len(rows):
        gains = _vote_gains(evidence.votes, features, rows, labels)
        voted = _fit(np.stack([*parts, gains], axis=1), hits, often)
        before, after = (
            _found(fit.log_odds(np.stack(columns, axis=1), often), rows, hits)
            for fit, columns in ((found, parts), (voted, [*parts, gains]))
        )
        if after >= VOTES_HELP * before:
            *slopes, slope = voted.slopes
            found, votes = replace(voted, slopes=slopes), replace(evidence.votes, slope=slope)
    logs, squares = found.free.tolist()
    scaling = Scaling(found.slopes[0], found.shift, found.slopes[-1], (logs, squares))
    scorer = _with_evidence(_rescaled(scorer, found), evidence, found)
    return replace(scorer, votes=votes), scaling


def _vote_gains(
    votes: TextVotes, features: Any, rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return what similar texts add to the scores of (text, label) pairs at a slope of one."""
    gains = np.zeros(len(rows), np.float32)
    bounds = np.searchsorted(rows, np.arange(features.shape[0] + 1))  # rows are sorted
    for row, (chosen, gain) in enumerate(votes.gains(features)):
        pairs = slice(bounds[row], bounds[row + 1])
        known = dict(zip(chosen.tolist(), gain.tolist(), strict=True))
        gains[pairs] = [known.get(label, 0.0) for label in labels[pairs].tolist()]
    return gains


def _found(scores: NDArray[np.float64], rows: NDArray[np.int64], hits: NDArray[np.bool_]) -> int:
    """Return how many gold labels are among the best five of their texts."""
    order = np.lexsort([-scores, rows])
    starts = np.searchsorted(rows[order], rows[order])  # where each pair's text starts
    first = np.arange(len(rows)) - starts < _LOOKED_AT
    return int(hits[order][first].sum())


def _rescaled(scorer: LinearScorer, found: _Scaling) -> LinearScorer:
    slope, *of_groups = found.slopes
    groups = scorer.groups
    if groups is not None:
        factor = np.ones(groups.weights.shape[1] + 1, np.float32)
        for level, slope_of_level in zip(groups.of.T, of_groups, strict=False):
            factor[level] = slope_of_level
        groups.weights.data *= factor[groups.weights.indices]
    scorer.weights.data *= np.float32(slope)
    biases = np.float32(slope) * scorer.biases + np.float32(found.shift)
    return LinearScorer(scorer.weights, biases, groups)


def _with_evidence(scorer: LinearScorer, evidence: LabelEvidence, found: _Scaling) -> LinearScorer:
    """Add what mean texts and frequencies tell to weights and biases."""
    evidence.profiles.data *= np.float32(found.slopes[-1])
    weights = scorer.weights + evidence.profiles
    weights.sort_indices()
    biases = scorer.biases + (frequency_terms(evidence.counts) @ found.free).astype(np.float32)
    trained = evidence.counts > 0
    # Below every trained label: without evidence a label without texts must not rank first.
    biases[~trained] = biases[trained].min(initial=0)
    return replace(scorer, weights=weights, biases=biases)


def _group_margins(
    groups: LabelGroups | None, features: Any, rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return what each level of groups adds to the scores of (text, label) pairs."""
    if groups is None:
        return np.zeros((len(rows), 0), np.float32)
    return groups.by_group(features)[rows[:, None], groups.of[labels]]


def _margins(
    weights: Any, features: Any, rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the scores of (text, label) pairs."""
    found = np.zeros(len(rows), np.float32)
    by_label = weights.tocsc()
    for start in range(0, len(rows), _CHUNK_PAIRS):
        pairs = slice(start, start + _CHUNK_PAIRS)
        products = features[rows[pairs]].multiply(by_label[:, labels[pairs]].T)
        found[pairs] = np.asarray(products.sum(axis=1)).ravel()
    return found


def fit_scaling(
    margins: NDArray[np.floating[Any]],
    gold: NDArray[np.bool_],
    *,
    offsets: NDArray[np.floating[Any]] | float = 0.0,
    counts: NDArray[np.floating[Any]] | float = 1.0,
) -> tuple[float, float]:
    """Fit slope and shift by maximum likelihood.

    Args:
        margins: Margins of (text, label) pairs.
        gold: Whether each text has the label.
        offsets: Log-odds that each pair has beside those of its margin.
        counts: How many pairs each of them stands for.

    Returns:
        (slope, shift); the slope is positive.
    """
    found = _fit(margins[:, None], gold, offsets=offsets, counts=counts)
    return found.slopes[0], found.shift


@dataclass(frozen=True)
class _Scaling:
    """A logistic function: positive slopes, free coefficients and a shift."""

    slopes: list[float]
    free: NDArray[np.float64]
    shift: float

    def log_odds(
        self, parts: NDArray[np.floating[Any]], constants: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """Return the log-odds of pairs of texts and labels."""
        total: NDArray[np.float64] = parts @ np.array(self.slopes) + constants @ self.free
        return total + self.shift


def _fit(
    parts: NDArray[np.floating[Any]],
    gold: NDArray[np.bool_],
    constants: NDArray[np.floating[Any]] | None = None,
    *,
    offsets: NDArray[np.floating[Any]] | float = 0.0,
    counts: NDArray[np.floating[Any]] | float = 1.0,
) -> _Scaling:
    """Fit a positive slope for each part, a coefficient for each constant of the labels, a shift.

    Newton's method; the priors keep few texts from giving extreme values.
    """
    free = np.zeros((len(parts), 0)) if constants is None else constants
    values = np.concatenate([parts, free, np.ones((len(parts), 1))], axis=1).astype(np.float64)
    n_parts, n_free = parts.shape[1], free.shape[1]
    usual = np.concatenate([np.full(n_parts, _USUAL_SLOPE), np.zeros(n_free + 1)])
    lowest = np.concatenate([np.full(n_parts, _LEAST_SLOPE), np.full(n_free + 1, -np.inf)])
    pull = np.concatenate([np.full(n_parts, _PULL), np.full(n_free, _FREE_PULL), [_PULL]])
    found = usual.copy()
    for _ in range(_STEPS):
        probability = sigmoid(values @ found + offsets)
        gradient = values.T @ (counts * (probability - gold)) + pull * (found - usual)
        spread = counts * probability * (1 - probability)
        hessian = (values * spread[:, None]).T @ values + np.diag(pull)
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        found = np.maximum(lowest, found - step)
        if np.abs(step).max() < 1e-6:
            break
    slopes = [float(value) for value in found[:n_parts]]
    return _Scaling(slopes, found[n_parts:-1], float(found[-1]))
