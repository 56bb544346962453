"""Which words and pairs of words speak for a label or against it, and where they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glocal.companions.sparse.vectoriser import PIECES, TITLE, Part, Vectoriser
from glocal.companions.sparse.words import first_lines, pieces_of, word_spans

__all__ = ["Contribution", "contributions"]


@dataclass(frozen=True)
class Contribution:
    """One feature's part in the log-odds of a label.

    Args:
        phrase: The word or pair of words, lower-cased.
        part: `text`; `title` for what the phrase counts for besides in the first line; `pieces` for
            what a word counts for by its pieces, shared evenly where a piece stands in several.
        weight: What it adds to the log-odds.
        spans: Where it stands in the text, as (start, stop) in characters.
    """

    phrase: str
    part: str
    weight: float
    spans: tuple[tuple[int, int], ...]


def contributions(vectoriser: Vectoriser, weights: Any, text: str) -> list[Contribution]:
    """Split a label's score of a text into its features' parts.

    Args:
        vectoriser: What turned the text into features.
        weights: (F,) the label's weights.
        text: The text.

    Returns:
        One contribution for each feature with a weight, the largest first by absolute value; with
        the label's bias they sum to its log-odds.
    """
    row = vectoriser.transform([text])
    parts = row.data * weights[row.indices]
    found: list[Contribution] = []
    offset = 0
    for part in vectoriser.parts:
        inside = (row.indices >= offset) & (row.indices < offset + len(part.vocabulary))
        features = (row.indices[inside] - offset).tolist()
        values = dict(zip(features, parts[inside].tolist(), strict=True))
        found += (_by_word if part.name == PIECES else _by_feature)(part, text, values)
        offset += len(part.vocabulary)
    return sorted(found, key=lambda c: (-abs(c.weight), c.phrase))


def _by_feature(part: Part, text: str, values: Mapping[int, float]) -> Iterator[Contribution]:
    spans = _feature_spans(part, text)
    for feature, value in values.items():
        if value:
            yield Contribution(part.vocabulary.name(feature), part.name, value, spans[feature])


def _by_word(part: Part, text: str, values: Mapping[int, float]) -> Iterator[Contribution]:
    """What each word owes to its pieces."""
    words = word_spans(text)
    pieces = [part.vocabulary.word_ids(pieces_of(word)).tolist() for word, _, _ in words]
    places = Counter(feature for features in pieces for feature in features)
    weights: dict[str, float] = {}
    spans: dict[str, list[tuple[int, int]]] = {}
    for (word, start, stop), features in zip(words, pieces, strict=True):
        share = sum(values.get(feature, 0.0) / places[feature] for feature in features)
        weights[word] = weights.get(word, 0.0) + share
        spans.setdefault(word, []).append((start, stop))
    for word, weight in weights.items():
        if weight:
            yield Contribution(word, part.name, weight, tuple(spans[word]))


def _feature_spans(part: Part, text: str) -> dict[int, tuple[tuple[int, int], ...]]:
    """Where each feature of a part stands in the text."""
    words = word_spans(first_lines([text])[0].as_py() if part.name == TITLE else text)
    ids = part.vocabulary.word_ids(word for word, _, _ in words)
    spans: dict[int, list[tuple[int, int]]] = {}
    for feature, (_, start, stop) in zip(ids.tolist(), words, strict=True):
        spans.setdefault(feature, []).append((start, stop))
    for place, feature in enumerate(part.vocabulary.pair_ids(ids).tolist()):
        spans.setdefault(feature, []).append((words[place][1], words[place + 1][2]))
    return {feature: tuple(places) for feature, places in spans.items() if feature >= 0}
