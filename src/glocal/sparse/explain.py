"""Which words and pairs of words speak for a label or against it, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glocal.sparse.vectoriser import Part, Vectoriser
from glocal.sparse.words import word_spans

__all__ = ["Contribution", "contributions"]


@dataclass(frozen=True)
class Contribution:
    """One feature's part in the log-odds of a label.

    Args:
        phrase: The word or pair of words, lower-cased.
        part: `text`, or `title` for what the phrase counts for besides in the first line.
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
    found, offset = [], 0
    for part in vectoriser.parts:
        spans = _feature_spans(part, text)
        inside = (row.indices >= offset) & (row.indices < offset + len(part.vocabulary))
        for feature, value in zip(row.indices[inside] - offset, parts[inside], strict=True):
            if value:
                phrase = part.vocabulary.name(int(feature))
                found.append(Contribution(phrase, part.name, float(value), spans[int(feature)]))
        offset += len(part.vocabulary)
    return sorted(found, key=lambda c: (-abs(c.weight), c.phrase))


def _feature_spans(part: Part, text: str) -> dict[int, tuple[tuple[int, int], ...]]:
    """Where each feature of a part stands in the text."""
    words = word_spans(str(_one(part.of([text]))))
    ids = part.vocabulary.word_ids(word for word, _, _ in words)
    spans: dict[int, list[tuple[int, int]]] = {}
    for feature, (_, start, stop) in zip(ids.tolist(), words, strict=True):
        spans.setdefault(feature, []).append((start, stop))
    for place, feature in enumerate(part.vocabulary.pair_ids(ids).tolist()):
        spans.setdefault(feature, []).append((words[place][1], words[place + 1][2]))
    return {feature: tuple(places) for feature, places in spans.items() if feature >= 0}


def _one(texts: Any) -> Any:
    item = texts[0]
    return item if isinstance(item, str) else item.as_py()
