"""Labels that several experts or models put forward, and scores looked up at them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glocal.ranking.predictions import Predictions

__all__ = ["distinct_labels", "scores_at"]

_LAST = np.iinfo(np.int64).max  # sorts empty places to the end


def distinct_labels(proposed: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct labels of each row in ascending order, padded with -1 at the end.

    Args:
        proposed: (n, m) labels in any order, -1 for none.
    """
    labels = np.sort(_last_if_empty(proposed), axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = _LAST
    labels.sort(axis=1)
    widest = int((labels != _LAST).sum(axis=1).max(initial=1))
    trimmed = labels[:, :widest]
    return np.where(trimmed == _LAST, -1, trimmed)


def scores_at(labels: NDArray[np.int64], scored: Predictions) -> NDArray[np.float32]:
    """The scores of labels, in their order; of empty places, -inf.

    Args:
        labels: From `distinct_labels`.
        scored: The same labels, sorted by score.
    """
    by_label = np.argsort(_last_if_empty(scored.indices), axis=1, kind="stable")
    found = np.take_along_axis(scored.indices, by_label, axis=1)
    assert np.array_equal(found, labels), "a candidate came back without a score"
    return np.take_along_axis(scored.scores, by_label, axis=1)


def _last_if_empty(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(labels < 0, _LAST, labels)
