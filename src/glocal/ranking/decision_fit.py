"""Thresholds tuned on held-out texts: for a precision, the best F1 or a number of labels per text.

Thresholds per label come from a shift of each label's log-odds, fitted to how often the label is
right where the model proposes it. A Gaussian prior around zero keeps the shifts of rare labels near
zero; its width is chosen by cross-validation, and the figures reported are cross-validated too. One
threshold on the shifted scale serves all labels, and is moved back by each label's shift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools, Floats, Ints
from glocal.errors import ConfigError
from glocal.log_odds import log_odds, sigmoid
from glocal.metrics.ranking import judge
from glocal.ranking.decision import Decision
from glocal.ranking.predictions import Predictions

_FOLDS = 5
_WIDTHS = (0.125, 0.25, 0.5, 1.0)  # standard deviations of the labels' shifts that are tried
_NEWTON_STEPS, _LARGEST_STEP = 12, 1.0
_CLIP = (1e-6, 1.0 - 1e-6)
_NOTICED = 0.005  # thresholds of labels that differ by less are not stored


@dataclass(frozen=True)
class Goal:
    """The goal that a threshold is tuned for; the highest micro-F1 by default.

    Attributes:
        precision: Lowest share of right tags among all tags.
        labels_per_text: Mean number of tags of a text.
    """

    precision: float | None = None
    labels_per_text: float | None = None

    def __str__(self) -> str:
        if self.precision is not None:
            return f"a precision of {self.precision:g}"
        if self.labels_per_text is not None:
            return f"{self.labels_per_text:g} label{'s' * (self.labels_per_text != 1)} per text"
        return "the highest F1"


@dataclass(frozen=True)
class DecisionScores:
    """Micro averages of the tags that a decision gives.

    Attributes:
        precision: Right tags over all tags.
        recall: Right tags over all gold labels.
        f1: Their harmonic mean.
        tags_per_text: Mean number of tags.
        without_tags: Share of texts that get none.
    """

    precision: float
    recall: float
    f1: float
    tags_per_text: float
    without_tags: float


@dataclass(frozen=True, eq=False)
class _Proposed:
    """The best labels of held-out texts, one entry for each, in arrays of one length.

    Args:
        texts: The text.
        labels: The label.
        scores: Its probability.
        hits: Whether it is gold.
        always: Whether it is a tag whatever its probability.
        n_texts: Number of texts.
        n_gold: Number of their gold labels, proposed or not.
    """

    texts: Ints
    labels: Ints
    scores: NDArray[np.floating]
    hits: Bools
    always: Bools
    n_texts: int
    n_gold: int

    @classmethod
    def of(cls, predictions: Predictions, gold: Any, at_least: int) -> _Proposed:
        judged = judge(predictions.indices, gold)
        filled = judged.indices >= 0
        texts, ranks = np.nonzero(filled)
        return cls(
            texts,
            judged.indices[filled],
            judged.kept_scores(predictions.scores)[filled],
            judged.hits[filled],
            ranks < at_least,
            len(judged.indices),
            int(judged.gold.sizes.sum()),
        )

    def tagged(self, keep: Bools) -> DecisionScores:
        """Return the micro averages if these become tags."""
        hits, given = int(self.hits[keep].sum()), int(keep.sum())
        some = len(np.unique(self.texts[keep]))
        return DecisionScores(
            hits / max(given, 1),
            hits / max(self.n_gold, 1),
            2 * hits / max(given + self.n_gold, 1),
            given / max(self.n_texts, 1),
            1.0 - some / max(self.n_texts, 1),
        )


def decision_scores(decision: Decision, predictions: Predictions, gold: Any) -> DecisionScores:
    """Return the micro averages of the tags a decision gives; texts without gold are skipped."""
    tags = _Proposed.of(decision(predictions), gold, 0)
    return tags.tagged(np.ones(len(tags.texts), bool))


def fit_decision(
    predictions: Predictions, gold: Any, *, goal: Goal | None = None, at_least: int = 1
) -> Decision:
    """Find the threshold that meets a goal best: by default the highest micro-F1.

    Args:
        predictions: Calibrated predictions of held-out texts.
        gold: Sparse (texts, columns ≥ labels); texts without gold are skipped.
        goal: What to tune for.
        at_least: Number of tags a text gets whatever their probability.

    Returns:
        The tuned decision; the default one if no prediction is gold.

    Raises:
        ConfigError: No threshold meets the goal.
    """
    proposed = _Proposed.of(predictions, gold, at_least)
    if not proposed.hits.any():
        return Decision(at_least=at_least)
    threshold, f1 = _threshold(proposed, goal or Goal())
    return Decision(threshold, at_least, f1)


def fit_label_decision(
    predictions: Predictions, gold: Any, *, goal: Goal, at_least: int = 1, seed: int = 0
) -> tuple[Decision, DecisionScores]:
    """Find thresholds per label that meet a goal, and what they achieve on texts not used for them.

    Args:
        predictions: Calibrated predictions of held-out texts, which know their labels.
        gold: Sparse (texts, columns ≥ labels); texts without gold are skipped.
        goal: What to tune for.
        at_least: Number of tags a text gets whatever their probability.
        seed: Random seed of the folds.

    Returns:
        The decision, and its scores by cross-validation.

    Raises:
        ConfigError: No threshold meets the goal.
    """
    proposed = _Proposed.of(predictions, gold, at_least)
    if not proposed.hits.any():
        decision = Decision(at_least=at_least)
        return decision, decision_scores(decision, predictions, gold)
    known, places = np.unique(proposed.labels, return_inverse=True)
    shifted, width = _cross_fitted(proposed, places, len(known), seed)
    held_out = replace(proposed, scores=shifted)
    threshold, f1 = _threshold(held_out, goal)
    scores = held_out.tagged(held_out.always | (shifted >= threshold))
    odds = log_odds(proposed.scores, _CLIP)
    shifts = _fit_shifts(odds, proposed.hits, places, len(known), width)
    own = sigmoid(log_odds(np.array(threshold), _CLIP) - shifts)
    ids = predictions.known_labels.ids
    noticed = np.flatnonzero(np.abs(own - threshold) >= _NOTICED)
    thresholds = {ids[known[i]]: round(float(own[i]), 6) for i in noticed.tolist()}
    return Decision(threshold, at_least, f1, thresholds), scores


def _cross_fitted(
    proposed: _Proposed, places: Ints, n_labels: int, seed: int
) -> tuple[Floats, float]:
    """Return probabilities shifted by the other folds, and the best width of the prior."""
    odds = log_odds(proposed.scores, _CLIP)
    draw = np.random.default_rng(seed).permutation(proposed.n_texts)
    fold = (draw % _FOLDS)[proposed.texts]
    best, best_width, lowest = odds, 0.0, _log_loss(odds, proposed.hits)
    for width in _WIDTHS:
        moved = odds.copy()
        for number in range(_FOLDS):
            own, rest = fold == number, fold != number
            found = _fit_shifts(odds[rest], proposed.hits[rest], places[rest], n_labels, width)
            moved[own] += found[places[own]]
        loss = _log_loss(moved, proposed.hits)
        if loss < lowest:
            best, best_width, lowest = moved, width, loss
    return sigmoid(best), best_width


def _fit_shifts(odds: Floats, hits: Bools, places: Ints, n_labels: int, width: float) -> Floats:
    """Return the most likely shift of each label's log-odds under a Gaussian prior."""
    shifts = np.zeros(n_labels)
    if width == 0.0:
        return shifts
    strength = width**-2
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(odds + shifts[places])
        slope = np.bincount(places, hits - p, n_labels) - strength * shifts
        curve = np.bincount(places, p * (1 - p), n_labels) + strength
        shifts += np.clip(slope / curve, -_LARGEST_STEP, _LARGEST_STEP)
    return shifts


def _log_loss(odds: Floats, hits: Bools) -> float:
    return float(np.logaddexp(0.0, np.where(hits, -odds, odds)).mean())


def _threshold(proposed: _Proposed, goal: Goal) -> tuple[float, float]:
    """Return the threshold that meets a goal best, and its micro-F1."""
    rest = ~proposed.always
    scores = proposed.scores[rest]
    order = np.argsort(-scores, kind="stable")
    others = scores[order]
    n_always, sure = int(proposed.always.sum()), int(proposed.hits[proposed.always].sum())
    hits = sure + np.concatenate(([0], np.cumsum(proposed.hits[rest][order])))
    given = n_always + np.arange(len(hits))
    apart = np.ones(len(hits), bool)
    apart[1:-1] = others[1:] != others[:-1]  # equal scores are kept or dropped together
    best = _best(goal, np.flatnonzero(apart), hits, given, proposed)
    return _between(others, best), float(2 * hits[best] / (given[best] + proposed.n_gold))


def _best(goal: Goal, allowed: Ints, hits: Ints, given: Ints, proposed: _Proposed) -> int:
    """Return how many labels become tags in addition to those that always do."""
    hits, tags, n_texts = hits[allowed], given[allowed], proposed.n_texts
    if goal.labels_per_text is not None:
        wanted = goal.labels_per_text * n_texts
        if not tags[0] <= wanted <= tags[-1]:
            raise ConfigError(
                f"{goal} cannot be reached: these texts can have {tags[0] / n_texts:.2f} to "
                f"{tags[-1] / n_texts:.2f} tags on average"
            )
        return int(allowed[np.argmin(np.abs(tags - wanted))])
    if goal.precision is None:
        return int(allowed[np.argmax(hits / (tags + proposed.n_gold))])
    precision = hits / np.maximum(tags, 1)
    enough = np.flatnonzero((precision >= goal.precision) & (tags > 0))
    if not len(enough):
        raise ConfigError(
            f"no threshold reaches {goal} on these texts; the highest is {precision.max():.3f}"
        )
    return int(allowed[enough[-1]])


def _between(scores: NDArray[np.floating], count: int) -> float:
    """Return a threshold that the first `count` of falling scores reach, and no other."""
    above = float(scores[count - 1]) if count else 1.0
    below = float(scores[count]) if count < len(scores) else 0.0
    middle = (above + below) / 2
    return middle if middle > below else above
