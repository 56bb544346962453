"""One text, read once so that its labels can be ranked and explained, without torch.

A model of words alone is linear, so its weights are the evidence of each word. Models with an
encoder are read by `word_evidence.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Floats, Floats32, Ints
from glocal.companions.companion import SPARSE, SPARSE_ODDS
from glocal.config.expert_names import SPARSE_EXPERT
from glocal.data.tokens import TokenStore
from glocal.predict.collate import collator
from glocal.predict.text_words import WordPlaces
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.words_ranker import WordsRanker, log_odds_at

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

_RANKED = 100  # best labels among which a given label is calibrated
_PARTS = 64  # parts of a text that are left out in turn

Evidence = Floats  # (words,) of a text


class TextReading:
    """One text as a model reads it.

    Args:
        predictor: The model.
        text: The text.
    """

    def __init__(self, predictor: Predictor, text: str) -> None:
        self.predictor = predictor
        self.places = WordPlaces(text)
        length = predictor.recipe.encoder.tokens_read
        ids, self.offsets, _ = predictor.tokenizer.encode_with_offsets(text, length)
        features = predictor.companions.features_for_texts([text])
        self.documents = collator(predictor, TokenStore.in_memory([ids]), features)

    def scored_labels(
        self, k: int, labels: Sequence[int] | None = None
    ) -> tuple[list[int], list[float]]:
        """Return the best k labels, or the given ones, and their calibrated probabilities.

        Calibration depends on the rank of a label, so given labels are calibrated among the best.
        """
        width = min(max(k, _RANKED), len(self.predictor.labels))
        best = self._rank(width)
        rest = {}
        if labels is not None:
            rest = {x: p for x, p in self._rank(len(labels), labels).items() if x not in best}
        both = {**best, **dict(sorted(rest.items(), key=lambda found: -found[1]))}
        found = np.array([list(both.values())], np.float32)
        added = self.predictor.labels.added[[list(both)]] if both else None
        scores = self.predictor.calibration(found, added=added)[0]
        calibrated = dict(zip(both, scores.tolist(), strict=True))
        chosen = list(best)[:k] if labels is None else list(dict.fromkeys(labels))
        return chosen, [calibrated[label] for label in chosen]

    def _rank(self, k: int, labels: Sequence[int] | None = None) -> dict[int, float]:
        given = None if labels is None else np.array([list(labels)])
        first = np.zeros(1, np.int64)
        found = self.predictor.system.rank_documents(self.documents, first, RankRequest(k, given))
        pairs = zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True)
        return {label: score for label, score in pairs if label >= 0}

    def logits(self, labels: Sequence[int]) -> Mapping[str, Any]:
        """Return each expert's log-odds of labels, (1, k)."""
        system = self.predictor.system
        assert isinstance(system, WordsRanker)
        best, odds = (self.documents.companion_features[name] for name in (SPARSE, SPARSE_ODDS))
        found: Floats32 = log_odds_at(
            best.astype(np.int64), odds, np.array([list(labels)]), system.unseen
        )
        return {SPARSE_EXPERT: found}

    def value(self, logit: Any) -> float:
        """Return one of the log-odds as a plain number."""
        return float(logit)

    def evidence(self, name: str, logit: Any, label: int) -> Evidence:
        """Return how far each word speaks for a label by one expert.

        Args:
            name: The expert.
            logit: Its log-odds of the label, from `logits`.
            label: Index of the label.
        """
        return self._word_weights(label)

    @cached_property
    def _parts(self) -> list[Ints]:
        """The words that are left out together: one by one, or in a long text its parts."""
        words = len(self.places)
        return np.array_split(np.arange(words), min(_PARTS, words or 1))

    def _texts_without(self) -> list[str]:
        """Return the text without each of its parts."""
        return [self.places.without(part.tolist()) for part in self._parts]

    def _spread(self, lost: Floats32) -> Evidence:
        """Return the evidence of each word from what the log-odds lose without each part."""
        weights = np.zeros(len(self.places))
        for part, loss in zip(self._parts, lost.tolist(), strict=True):
            weights[part] = loss / max(1, len(part))
        return weights

    def _word_weights(self, label: int) -> Evidence:
        found = self.predictor.companions.word_contributions(self.places.text, label)
        return self.places.weigh(
            (place, part.weight / len(part.spans)) for part in found for place in part.spans
        )
