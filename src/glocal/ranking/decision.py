"""The decision which labels of a text become its tags: a threshold tuned on held-out texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.metrics.ranking import judge
from glocal.ranking.predictions import Predictions

_FIRST_WIDTH = 64  # labels asked for first where a threshold alone limits them


@dataclass(frozen=True)
class Decision:
    """Keeps the labels that reach a threshold, and always the best few.

    Attributes:
        threshold: Lowest probability of a tag.
        at_least: Number of tags a text gets whatever their probability.
        micro_f1: Micro-F1 of this decision on the texts it was tuned on; None if it was not tuned.
    """

    threshold: float = 0.5
    at_least: int = 1
    micro_f1: float | None = None

    def __call__(self, predictions: Predictions) -> Predictions:
        """Return the predictions without the labels that are no tags."""
        keep = predictions.scores >= self.threshold
        keep[:, : self.at_least] = True
        return predictions.masked(keep & (predictions.indices >= 0))

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for storage."""
        stored: dict[str, Any] = {"threshold": self.threshold, "at_least": self.at_least}
        return stored if self.micro_f1 is None else {**stored, "micro_f1": self.micro_f1}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Decision:
        """Read stored values."""
        tuned = mapping.get("micro_f1")
        return cls(
            float(mapping["threshold"]),
            int(mapping["at_least"]),
            None if tuned is None else float(tuned),
        )


def choose_tags(
    best: Callable[..., Predictions],
    n_labels: int,
    decision: Decision,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> Predictions:
    """Return the tags of texts, by the rule that every way of tagging follows.

    With k, the k best labels; with a threshold, every label that reaches it; with both, at most k
    that reach it; with neither, the labels the decision keeps.

    Args:
        best: Returns the best labels of each text; called with their number, `k`.
        n_labels: Number of labels there are.
        decision: The decision stored with the model.
        k: Largest number of labels for a text.
        threshold: Lowest probability of a label.
    """
    if k is not None:
        return best(k=k).above(threshold or 0.0)
    if threshold is not None:
        decision = Decision(threshold, at_least=0)
    width = min(_FIRST_WIDTH, n_labels)
    found = best(k=width)
    # More labels are asked for until one is below the threshold.
    while width < n_labels and (found.scores[:, -1] >= decision.threshold).any():
        width = min(8 * width, n_labels)
        found = best(k=width)
    return decision(found)


def fit_decision(predictions: Predictions, gold: Any, *, at_least: int = 1) -> Decision:
    """Find the threshold with the highest micro-F1.

    Args:
        predictions: Calibrated predictions of held-out texts.
        gold: Sparse (texts, columns ≥ labels); texts without gold are skipped.
        at_least: Number of tags a text gets whatever their probability.

    Returns:
        The tuned decision; the default one if no prediction is gold.
    """
    judged = judge(predictions.indices, gold)
    scores = judged.kept_scores(predictions.scores)
    filled = judged.indices >= 0
    if not judged.hits.any():
        return Decision(at_least=at_least)
    always = filled[:, :at_least]
    rest = filled[:, at_least:]
    order = np.argsort(-scores[:, at_least:][rest], kind="stable")
    others = scores[:, at_least:][rest][order]
    hits = np.concatenate(([0], np.cumsum(judged.hits[:, at_least:][rest][order])))
    hits = hits + np.count_nonzero(judged.hits[:, :at_least] & always)
    given = np.arange(len(hits)) + np.count_nonzero(always)
    f1 = 2 * hits / (given + judged.gold.sizes.sum())
    f1[1:-1][others[1:] == others[:-1]] = -1.0  # equal scores are kept or dropped together
    best = int(np.argmax(f1))
    return Decision(_between(others, best), at_least, float(f1[best]))


def _between(scores: NDArray[np.floating], count: int) -> float:
    """Return a threshold that the first `count` of falling scores reach, and no other."""
    above = float(scores[count - 1]) if count else 1.0
    below = float(scores[count]) if count < len(scores) else 0.0
    middle = (above + below) / 2
    return middle if below < middle <= above else above
