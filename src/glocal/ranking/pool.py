"""Pools: the labels that several experts or models propose for a text, and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glocal.arrays import Bools, Floats32, Ints
from glocal.log_odds import log_odds
from glocal.ranking.predictions import Predictions

_CLIP = (1e-7, 1.0 - 1e-7)
_LAST = np.iinfo(np.int64).max  # sorts empty places to the end


class Pool:
    """Log-odds of every expert at the pooled labels of documents.

    Args:
        labels: (n, m) pooled labels, from `distinct_labels`.
        scored: Each expert's probabilities of them by its name, in any order.
        counts: (L,) training texts of every label; without them all labels count alike.
    """

    def __init__(
        self, labels: Ints, scored: Mapping[str, Predictions], counts: Ints | None = None
    ) -> None:
        self.labels, self.names = labels, list(scored)
        self.filled = labels >= 0
        columns = [log_odds(scores_at(labels, alone), _CLIP) for alone in scored.values()]
        self.log_odds = np.stack(columns, axis=-1)  # (n, m, experts)
        self.log_counts = np.zeros(labels.shape)  # (n, m)
        if counts is not None:
            self.log_counts += np.log(np.maximum(counts, 1))[np.maximum(labels, 0)]

    def hits(self, gold: Any) -> Bools:
        """Mark the pooled labels that are gold, (n, m)."""
        rows = np.repeat(np.arange(len(self.labels)), self.labels.shape[1])
        found = np.asarray(gold[rows, np.maximum(self.labels, 0).ravel()]).reshape(
            self.labels.shape
        )
        return np.asarray((found > 0) & self.filled)


def distinct_labels(proposed: Ints) -> Ints:
    """Return the distinct labels of each row in ascending order, padded with -1 at the end.

    Args:
        proposed: (n, m) labels in any order, -1 for none.
    """
    labels = np.sort(_last_if_empty(proposed), axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = _LAST
    labels.sort(axis=1)
    widest = int((labels != _LAST).sum(axis=1).max(initial=1))
    trimmed = labels[:, :widest]
    return np.where(trimmed == _LAST, -1, trimmed)


def scores_at(labels: Ints, scored: Predictions) -> Floats32:
    """Return the scores of labels in their order; empty places score -inf.

    Args:
        labels: The result of `distinct_labels`.
        scored: The same labels, sorted by score.
    """
    by_label = np.argsort(_last_if_empty(scored.indices), axis=1, kind="stable")
    found = np.take_along_axis(scored.indices, by_label, axis=1)
    assert np.array_equal(found, labels), "a candidate came back without a score"
    return np.take_along_axis(scored.scores, by_label, axis=1)


def _last_if_empty(labels: Ints) -> Ints:
    return np.where(labels < 0, _LAST, labels)
