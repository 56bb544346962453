"""Pools: the labels that several experts or models propose for a text, and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools, Floats, Floats32, Ints
from glocal.log_odds import log_odds
from glocal.ranking.predictions import Predictions

LOWEST_AND_HIGHEST = (1e-7, 1.0 - 1e-7)  # probabilities of finite log-odds
_LAST = np.iinfo(np.int64).max  # sorts empty places to the end


@dataclass(frozen=True, eq=False)
class Pool:
    """Log-odds of every expert at the pooled labels of documents.

    Attributes:
        labels: (n, m) pooled labels, from `distinct_labels`.
        names: The experts.
        log_odds: (n, m, experts) their log-odds of the labels.
        log_counts: (n, m) logarithm of the labels' training texts; 0 where all count alike.
    """

    labels: Ints
    names: list[str]
    log_odds: Floats
    log_counts: NDArray[np.float64]

    @classmethod
    def from_predictions(
        cls, labels: Ints, scored: Mapping[str, Predictions], counts: Ints | None = None
    ) -> Pool:
        """Return the pool of labels that every expert has scored.

        Args:
            labels: (n, m) pooled labels, from `distinct_labels`.
            scored: Each expert's probabilities of them by its name, in any order.
            counts: (L,) training texts of every label; without them all labels count alike.
        """
        columns = [
            log_odds(scores_at(labels, alone), LOWEST_AND_HIGHEST) for alone in scored.values()
        ]
        return cls(labels, list(scored), np.stack(columns, axis=-1), log_counts(labels, counts))

    @property
    def filled(self) -> Bools:
        """The places that hold a label, (n, m)."""
        return self.labels >= 0

    def hits(self, gold: Any) -> Bools:
        """Mark the pooled labels that are gold, (n, m)."""
        rows = np.repeat(np.arange(len(self.labels)), self.labels.shape[1])
        found = np.asarray(gold[rows, self.labels.ravel()]).reshape(self.labels.shape)
        return np.asarray((found > 0) & self.filled)


def log_counts(labels: Ints, counts: Ints | None) -> NDArray[np.float64]:
    """Return the logarithm of the training texts of labels (n, m); 0 without counts."""
    if counts is None:
        return np.zeros(labels.shape)
    logs: NDArray[np.float64] = np.log(np.maximum(counts, 1))
    return logs[labels]


def distinct_labels(proposed: Ints) -> Ints:
    """Return the distinct labels of each row in ascending order, padded with -1 at the end.

    Args:
        proposed: (n, m) labels in any order, -1 for none.
    """
    labels = np.sort(_last_if_empty(proposed))
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = _LAST
    labels.sort()
    widest = int((labels != _LAST).sum(axis=1).max(initial=1))
    trimmed = labels[:, :widest]
    return np.where(trimmed == _LAST, -1, trimmed)


def scores_at(labels: Ints, scored: Predictions) -> Floats32:
    """Return the scores of labels in their order; empty places score -inf.

    Args:
        labels: The result of `distinct_labels`.
        scored: The same labels, sorted by score.
    """
    by_label = np.argsort(_last_if_empty(scored.indices))
    found = np.take_along_axis(scored.indices, by_label, 1)
    assert np.array_equal(found, labels), "a candidate came back without a score"
    return np.take_along_axis(scored.scores, by_label, 1)


def _last_if_empty(labels: Ints) -> Ints:
    return np.where(labels < 0, _LAST, labels)
