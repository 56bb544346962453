"""Explanations: the words behind a tag, and what each expert contributed to it.

- Every expert's evidence is mapped to the same words of the text (`text_words`) and comes as one
  list of spans. Within an expert the weights of all words that speak for the tag sum to one; those
  of the whole model (`ALL`) are the experts' weights, each counted by its contribution.
- An expert's contribution is its part of the tag's combined log-odds, before calibration: how far
  it moves them from the label's share of the training texts. Contributions add up to that
  distance, also where probabilities are averaged (Aumann and Shapley's values: all experts move
  together from there to their scores, and each step is credited to who made it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Floats
from glocal.log_odds import log_odds, sigmoid

if TYPE_CHECKING:
    from glocal.predict.text_words import WordPlaces
    from glocal.ranking.combination import Combination
    from glocal.vocabulary.label_space import LabelSpace

ALL = "all"  # stands for the whole model where spans name an expert
_LARGEST = 30.0  # log-odds beyond which a probability is 0 or 1
_STEPS = 32
_LEAST = 0.05  # weight of a word that is shown, over that of the strongest


@dataclass(frozen=True)
class Span:
    """A word or phrase of the text and its part of the evidence for a tag.

    Args:
        start: Its first character.
        end: The character after its last one.
        text: The word or phrase as written.
        weight: Its share of the expert's evidence for the tag, above 0 and up to 1.
        expert: The expert whose evidence it is; `all` for the whole model.
    """

    start: int
    end: int
    text: str
    weight: float
    expert: str


@dataclass(frozen=True)
class ExpertPart:
    """The contribution of one expert to a tag.

    Args:
        name: The expert.
        score: The tag's probability by this expert alone.
        log_odds: Its contribution to the tag's combined log-odds.
        share: This contribution over the sum of all experts' contributions without their signs;
            below 0 if the expert speaks against the tag.
    """

    name: str
    score: float
    log_odds: float
    share: float


@dataclass(frozen=True)
class TagExplanation:
    """A label of a text, what each expert contributed to it, and the words behind it.

    Args:
        id: The label's id.
        name: Its name.
        score: Its probability.
        experts: The contribution of each expert.
        spans: Words and phrases, those of the whole model first; for each the strongest first.

    Example:
        >>> best = predictor.explain("an apple", k=1)[0]
        >>> best.id, [span.text for span in best.spans_of()]
        ('fruit', ['apple'])
    """

    id: str
    name: str
    score: float
    experts: list[ExpertPart]
    spans: list[Span]

    def spans_of(self, expert: str = ALL) -> list[Span]:
        """Return the spans of one expert; by default those of the whole model."""
        return [span for span in self.spans if span.expert == expert]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def expert_parts(
    logits: Mapping[str, float], combination: Combination, prior: float
) -> list[ExpertPart]:
    """Return each expert's contribution to the combined log-odds of one label.

    Args:
        logits: The log-odds by each expert.
        combination: How they are combined.
        prior: Log-odds of the label before a text is read, from which experts move it.
    """
    z = np.clip(list(logits.values()), -_LARGEST, _LARGEST)
    moved = z - prior
    way = (np.arange(_STEPS) + 0.5)[:, None] / _STEPS
    if combination.weights:
        slopes = np.array([combination.weights[name] for name in logits])
    else:
        p = sigmoid(prior + way * moved)  # (steps, experts)
        mean = p.mean(1, keepdims=True)
        slopes = (p * (1 - p) / len(z) / np.maximum(mean * (1 - mean), 1e-12)).mean(0)
    parts = slopes * moved
    total = np.abs(parts).sum() or 1.0
    return [
        ExpertPart(name, float(p), float(part), float(part / total))
        for name, p, part in zip(logits, sigmoid(z), parts, strict=True)
    ]


def prior_log_odds(labels: LabelSpace, label: int) -> float:
    """Return the log-odds of a label before a text is read, from its training texts."""
    share = (labels.counts[label] + 0.5) / (labels.n_documents + 1.0)
    return float(log_odds(np.minimum(share, 0.5)))


def tag_spans(
    places: WordPlaces, evidence: Mapping[str, Floats], parts: Sequence[ExpertPart], words: int
) -> list[Span]:
    """Return the words and phrases behind a tag, of the whole model and of each expert.

    Args:
        places: The words of the text.
        evidence: For each expert (words,) how far a word speaks for the tag, below 0 against it;
            the unit is the expert's own.
        parts: The experts' contributions.
        words: Largest number of words for an expert; neighbouring words become one span.
    """
    own = {name: _shares(weights) for name, weights in evidence.items()}
    counted = {part.name: max(part.log_odds, 0.0) for part in parts if own[part.name].any()}
    if not any(counted.values()):  # nobody speaks for the tag: who comes nearest to it?
        counted = dict.fromkeys(counted, 1.0)
    whole = sum((weight * own[name] for name, weight in counted.items()), np.zeros(len(places)))
    spans = _best_spans(places, _shares(whole), ALL, words)
    for name, weights in own.items():
        spans += _best_spans(places, weights, name, words)
    return spans


def _shares(weights: Floats) -> Floats:
    """Return the part of each word in the sum of those that speak for the tag."""
    positive = np.maximum(weights, 0.0)
    total = positive.sum()
    return positive / total if total > 0 else positive


def _best_spans(places: WordPlaces, weights: Floats, expert: str, words: int) -> list[Span]:
    best = np.argsort(-weights, kind="stable")[:words]
    lowest = _LEAST * weights.max(initial=0.0)
    chosen = best[(weights[best] > 0) & (weights[best] >= lowest)].tolist()
    spans = [
        Span(start, end, places.text[start:end], float(weights[members].sum()), expert)
        for (start, end), members in places.phrases(chosen, weights)
    ]
    return sorted(spans, key=lambda span: (-span.weight, span.start))
