"""The decision which labels of a text become its tags: a threshold tuned on held-out texts."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Floats32
from glocal.ranking.predictions import Predictions

if TYPE_CHECKING:
    from glocal.vocabulary.label_space import LabelSpace

_FIRST_WIDTH = 64  # labels asked for first where a threshold alone limits them


@dataclass(frozen=True)
class Decision:
    """Keeps the labels that reach a threshold, and always the best few.

    Attributes:
        threshold: Lowest probability of a tag.
        at_least: Number of tags a text gets whatever their probability.
        micro_f1: Micro-F1 of this decision on the texts it was tuned on; None if it was not tuned.
        own: Thresholds of labels that have one of their own, by label id.
        goal: What it was tuned for after training, in words; empty if it comes from training.
        n_texts: Number of texts it was tuned on after training.
    """

    threshold: float = 0.5
    at_least: int = 1
    micro_f1: float | None = None
    own: Mapping[str, float] = field(default_factory=dict)
    goal: str = ""
    n_texts: int = 0
    _limits: list[tuple[LabelSpace, Floats32]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __call__(self, predictions: Predictions) -> Predictions:
        """Return the predictions without the labels that are no tags."""
        limits: Floats32 | float = self.threshold
        if self.own:
            limits = self._limits_of(predictions.known_labels)[predictions.indices]
        keep = predictions.scores >= limits
        keep[:, : self.at_least] = True
        return predictions.masked(keep & (predictions.indices >= 0))

    @property
    def lowest(self) -> float:
        """The lowest threshold of any label."""
        return min(self.threshold, *self.own.values()) if self.own else self.threshold

    def renamed(self, ids: Mapping[str, str]) -> Decision:
        """Return the decision for labels that got other ids, given by the old ones."""
        return replace(self, own={ids.get(id_, id_): t for id_, t in self.own.items()})

    def restricted(self, ids: Container[str]) -> Decision:
        """Return the decision without the thresholds of labels that are no longer there."""
        return replace(self, own={id_: t for id_, t in self.own.items() if id_ in ids})

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for storage."""
        stored: dict[str, Any] = {"threshold": self.threshold, "at_least": self.at_least}
        if self.micro_f1 is not None:
            stored["micro_f1"] = self.micro_f1
        if self.goal:
            stored |= {"goal": self.goal, "n_texts": self.n_texts}
        return {**stored, "own": dict(self.own)} if self.own else stored

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Decision:
        """Read stored values."""
        tuned = mapping.get("micro_f1")
        return cls(
            float(mapping["threshold"]),
            int(mapping["at_least"]),
            None if tuned is None else float(tuned),
            own={str(id_): float(t) for id_, t in mapping.get("own", {}).items()},
            goal=str(mapping.get("goal", "")),
            n_texts=int(mapping.get("n_texts", 0)),
        )

    def _limits_of(self, labels: LabelSpace) -> Floats32:
        """Return the threshold of every label, computed once for a label space."""
        for known, limits in self._limits:
            if known is labels:
                return limits
        limits = np.full(len(labels), self.threshold, np.float32)
        for id_, threshold in self.own.items():
            if id_ in labels.index:
                limits[labels.index[id_]] = threshold
        self._limits[:] = [(labels, limits)]
        return limits


def tag_steps(
    n_labels: int,
    decision: Decision,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> Generator[int, Predictions, Predictions]:
    """Choose the tags of texts, by the rule that every way of tagging follows.

    With k, the k best labels; with a threshold, every label that reaches it; with both, at most k
    that reach it; with neither, the labels the decision keeps.

    Args:
        n_labels: Largest number of labels of a text.
        decision: The decision stored with the model.
        k: Largest number of labels for a text.
        threshold: Lowest probability of a label.

    Yields:
        How many of the best labels it needs next; they are sent back.

    Returns:
        The tags.
    """
    if k is not None:
        found = yield k
        return found.above(threshold or 0.0)
    if threshold is not None:
        decision = Decision(threshold, at_least=0)
    width = min(_FIRST_WIDTH, n_labels)
    found = yield width
    # More labels are asked for until one is below every threshold.
    while width < n_labels and (found.scores[:, -1] >= decision.lowest).any():
        width = min(8 * width, n_labels)
        found = yield width
    return decision(found)


def choose_tags(
    best: Callable[..., Predictions],
    n_labels: int,
    decision: Decision,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> Predictions:
    """Return the tags of texts as `tag_steps` chooses them.

    Args:
        best: Returns the best labels of each text; called with their number, `k`.
        n_labels: Number of labels there are.
        decision: The decision stored with the model.
        k: Largest number of labels for a text.
        threshold: Lowest probability of a label.
    """
    steps = tag_steps(n_labels, decision, k=k, threshold=threshold)
    width = next(steps)
    while True:
        try:
            width = steps.send(best(k=width))
        except StopIteration as end:
            found: Predictions = end.value
            return found
