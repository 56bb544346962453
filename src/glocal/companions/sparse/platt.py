"""Platt scaling, which turns margins into probabilities: p = σ(slope · margin + shift).

- Fitted on the best labels of held-out texts, about as many as a user looks at: probabilities are
  read there, and a margin that is the best of thousands is less reliable.
- Slope and shift are folded into weights and biases: a score is a log-odds and still a sum of
  parts.
- Held-out texts are chosen so that every label keeps at least one training text.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.solver import START_BIAS
from glocal.companions.sparse.sparse_rows import combined_rows
from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer, top_labels
from glocal.companions.sparse.text_votes import TextVotes
from glocal.companions.sparse.training_memory import (
    FEWEST_TEXTS,
    Scaling,
    frequency_terms,
    rarity,
)
from glocal.log_odds import sigmoid

if TYPE_CHECKING:
    from glocal.companions.sparse.name_matcher import NameMatcher

BEST_LABELS = 20
HELD_OUT_SHARE = 50
MOST_HELD_OUT = 2000
FEWEST_HELD_OUT = 100
_STEPS = 50
# A weak prior on the slope: a handful of texts must not make it infinite.
_USUAL_SLOPE, _PULL, _LEAST_SLOPE = 4.0, 0.05, 0.1
# A stronger one on the terms of a label's frequency, which are zero without evidence.
_FREE_PULL = 1.0
_CHUNK_PAIRS = 4096
_CHUNK_WEIGHTS, _CHUNK_TEXTS = 1 << 20, 64
LEAST_NAME_SLOPE = 0.5  # of rare names; below it they are not worth the time that they take
# Evidence on labels whose weights are trained on matched texts is used if it finds so many times as
# many labels, and so many more.
EVIDENCE_HELPS, EVIDENCE_FINDS = 1.01, 10
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
        names: The labels' names (`found_names`); None without.
        on_trial: Whether likeness and frequency, too, are used only if they help.
    """

    profiles: Any
    counts: NDArray[np.int64]
    votes: TextVotes | None = None
    names: NameMatcher | None = None
    on_trial: bool = False


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
    next: the label's weights, each level of its groups, the likeness to its mean text. Weights and
    likeness have one for rare labels and one for frequent ones. Labels trained against a sample of
    texts are scored too high the more frequent they are; the logarithm of a label's texts and its
    square correct this. Evidence on trial is used if with it at least `EVIDENCE_HELPS` times as
    many labels of the held-out texts are among the best five; votes of similar texts are added if
    they find `VOTES_HELP` times as many.

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
    best = _best_pairs(scorer, features, gold, threads=threads)
    if evidence is None:
        return _without_evidence(scorer, best)
    # No held-out text has a label whose only text was trained on: such labels teach nothing.
    pairs = best.take(evidence.counts[best.labels] >= FEWEST_TEXTS)
    often = frequency_terms(evidence.counts)[pairs.labels]
    parts = _evidence_parts(evidence, features, pairs)
    found = _fit(parts, pairs.hits, often)
    n_found = pairs.found(found.log_odds(parts, often))
    if evidence.on_trial:
        before = pairs.found(pairs.parts.sum(axis=1))
        if n_found < max(EVIDENCE_HELPS * before, before + EVIDENCE_FINDS):
            return _without_evidence(scorer, best)
    names, votes = None, None
    if evidence.votes is not None and len(pairs.rows):
        gains = _vote_gains(evidence.votes, features, pairs.rows, pairs.labels)
        with_votes = np.concatenate([parts, gains[:, None]], axis=1)
        voted = _fit(with_votes, pairs.hits, often)
        if pairs.found(voted.log_odds(with_votes, often)) >= VOTES_HELP * n_found:
            *slopes, slope = voted.slopes
            found, votes = replace(voted, slopes=slopes), replace(evidence.votes, slope=slope)
    if evidence.names is not None and found.slopes[-1] >= LEAST_NAME_SLOPE:
        slopes_of = evidence.names.slopes * np.float32(found.slopes[-1])
        names = replace(evidence.names, slopes=slopes_of)
    scaling = found.of_evidence()
    scorer = _rescaled(scorer, scaling, evidence.counts, found.slopes[4:])
    return replace(_with_likeness(scorer, evidence, scaling), votes=votes, names=names), scaling


def _without_evidence(scorer: LinearScorer, pairs: _Pairs) -> tuple[LinearScorer, Scaling]:
    """Rescale margins alone."""
    found = _fit(pairs.parts, pairs.hits)
    scaling = Scaling(found.slopes[0], found.shift)
    counts = np.zeros(scorer.n_labels, np.int64)  # they do not matter
    return _rescaled(scorer, scaling, counts, found.slopes[1:]), scaling


@dataclass(frozen=True)
class _Pairs:
    """Held-out texts and their best labels.

    Args:
        rows: The text of each pair, sorted.
        labels: The label of each pair.
        hits: Whether the text has the label.
        parts: (pairs, 1 + levels) the margin of the label alone, and what its groups add.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    hits: NDArray[np.bool_]
    parts: NDArray[np.float32]

    def take(self, chosen: NDArray[np.bool_]) -> _Pairs:
        """Return some of the pairs."""
        rows, labels, hits = self.rows[chosen], self.labels[chosen], self.hits[chosen]
        return _Pairs(rows, labels, hits, self.parts[chosen])

    def found(self, scores: NDArray[np.floating[Any]]) -> int:
        """Return how many gold labels are among the best five of their texts."""
        order = np.lexsort([-scores, self.rows])
        starts = np.searchsorted(self.rows, self.rows)  # where each pair's text starts
        first = np.arange(len(self.rows)) - starts < _LOOKED_AT
        return int(self.hits[order][first].sum())


def _best_pairs(scorer: LinearScorer, features: Any, gold: Any, *, threads: int) -> _Pairs:
    best, margins = top_labels(scorer, features, BEST_LABELS, threads=threads)
    there = best >= 0
    rows, labels = np.nonzero(there)[0], best[there]
    hits = np.asarray(gold[rows, labels]).ravel() > 0 if len(rows) else np.zeros(0, dtype=bool)
    shared = _group_margins(scorer.groups, features, rows, labels)
    own = margins[there] - shared.sum(axis=1)
    return _Pairs(rows, labels, hits, np.concatenate([own[:, None], shared], axis=1))


def _evidence_parts(
    evidence: LabelEvidence, features: Any, pairs: _Pairs
) -> NDArray[np.floating[Any]]:
    """Return the parts of the log-odds of pairs, to each of which a slope is fitted.

    Returns:
        (pairs, 4 + levels), margins and likeness, for frequent and for rare labels, and the scores
        of groups; with names, their scores.
    """
    rare = rarity(evidence.counts)[pairs.labels]
    margins = pairs.parts[:, 0] - START_BIAS
    likeness = _margins(evidence.profiles, features, pairs.rows, pairs.labels)
    shares = [part * share for part in (margins, likeness) for share in (1 - rare, rare)]
    named = []
    if evidence.names is not None:
        named = [_name_scores(evidence.names, features, pairs)]
    return np.stack([*shares, *pairs.parts.T[1:], *named], axis=1)


def _name_scores(names: NameMatcher, features: Any, pairs: _Pairs) -> NDArray[np.float32]:
    """Return the scores of pairs by the names of labels."""
    size = max(pairs.labels.max(initial=-1), names.labels.max(initial=-1)) + 1
    keys, values = [np.array([-1])], [np.zeros(1, np.float32)]
    for start in range(0, features.shape[0], _CHUNK_TEXTS):
        rows, labels, gains = names.gains(features[start : start + _CHUNK_TEXTS])
        keys.append((rows + start) * size + labels)  # in order
        values.append(gains)
    known, wanted = np.concatenate(keys), pairs.rows * size + pairs.labels
    place = np.searchsorted(known, wanted, side="right") - 1
    found: NDArray[np.float32] = np.concatenate(values)[place] * (known[place] == wanted)
    return found


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


def _rescaled(
    scorer: LinearScorer, scaling: Scaling, counts: NDArray[np.int64], of_groups: list[float]
) -> LinearScorer:
    """Return the scorer of log-odds, without likeness."""
    groups = scorer.groups
    if groups is not None:
        factor = np.ones(groups.weights.shape[1] + 1, np.float32)
        for level, slope_of_level in zip(groups.of.T, of_groups, strict=False):
            factor[level] = slope_of_level
        _scale_labels(groups.weights, factor)
    slopes = scaling.slopes(counts)
    _scale_labels(scorer.weights, slopes)
    return LinearScorer(scorer.weights, slopes * scorer.biases + scaling.constants(counts), groups)


def _scale_labels(weights: Any, factors: NDArray[np.float32]) -> None:
    """Multiply the weights of each label, in place and a part at a time to save memory."""
    for start in range(0, weights.nnz, _CHUNK_WEIGHTS):
        some = slice(start, start + _CHUNK_WEIGHTS)
        weights.data[some] *= factors[weights.indices[some]]


def _with_likeness(scorer: LinearScorer, evidence: LabelEvidence, scaling: Scaling) -> LinearScorer:
    """Add the mean texts of labels to their weights."""
    _scale_labels(evidence.profiles, scaling.likenesses(evidence.counts))
    weights = combined_rows(operator.add, scorer.weights, evidence.profiles)
    trained, biases = evidence.counts > 0, scorer.biases.copy()
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

    def of_evidence(self) -> Scaling:
        """Return the scaling of margins, whose slope does not count at the bias they start from."""
        slope, rare_slope, likeness, rare_likeness = self.slopes[:4]
        shift, (logs, squares) = self.shift - START_BIAS * slope, self.free.tolist()
        return Scaling(slope, shift, likeness, (logs, squares), rare_slope, rare_likeness)


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
