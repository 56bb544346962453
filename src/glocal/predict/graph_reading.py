"""One text read by an exported model: words are left out in turn, as a graph has no gradients.

A word's evidence for a label is what the expert's log-odds lose without it; in a long text,
neighbouring words are left out together. The evidence of the words model is its weights, as
everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Floats32
from glocal.config.expert_names import SPARSE_EXPERT
from glocal.predict.collate import collate
from glocal.predict.text_reading import Evidence, TextReading
from glocal.ranking.graph_ranker import GraphRanker

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor


class GraphReading(TextReading):
    """One text, read by a graph.

    Args:
        predictor: An exported model.
        text: The text.
    """

    def __init__(self, predictor: Predictor, text: str) -> None:
        super().__init__(predictor, text)
        assert isinstance(predictor.system, GraphRanker)
        self.system = predictor.system
        self._labels: list[int] = []

    def logits(self, labels: Sequence[int]) -> Mapping[str, Any]:
        """Return each expert's log-odds of labels, (1, k)."""
        self._labels = list(labels)
        given = np.array([self._labels])
        return self.system.expert_logits(self.documents, np.zeros(1, np.int64), given)

    def evidence(self, name: str, logit: Any, label: int) -> Evidence:
        """Return how far each word speaks for a label by one expert.

        Args:
            name: The expert.
            logit: Its log-odds of the label, from `logits`.
            label: Index of the label.
        """
        if name == SPARSE_EXPERT:
            return self._word_weights(label)
        without = self._without[name][:, self._labels.index(label)]
        return self._spread(float(logit) - without)

    @cached_property
    def _without(self) -> Mapping[str, Floats32]:
        """Each expert's log-odds of the labels, (parts, k), without each part of the text."""
        texts = self._texts_without()
        documents = collate(self.predictor, texts)
        labels = np.tile(self._labels, (len(texts), 1))
        return self.system.expert_logits(documents, np.arange(len(texts)), labels)
