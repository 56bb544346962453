"""The words and word pairs that speak for a label or against it, with their places in a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import SparseRows
from glocal.companions.sparse.vectoriser import PIECES, STEMS, TITLE, Part, Vectoriser
from glocal.companions.sparse.words import first_lines, word_spans


@dataclass(frozen=True)
class Contribution:
    """The contribution of one feature to a label's log-odds.

    Args:
        phrase: The word or pair of words, lower-cased.
        part: `text`; `title` for its additional weight in the first line; `pieces` for the weight
            of a word's pieces, shared evenly among the words that have a piece; `stems` likewise;
            `names` for a word of a label's name that no training text has.
        weight: Its contribution to the log-odds.
        spans: Its places in the text, as (start, stop) in characters.
    """

    phrase: str
    part: str
    weight: float
    spans: tuple[tuple[int, int], ...]


def contributions(
    vectoriser: Vectoriser, parts: Callable[[SparseRows], NDArray[np.float32]], text: str
) -> list[Contribution]:
    """Split a label's score of a text into the contributions of its features.

    Args:
        vectoriser: Turns the text into features.
        parts: Returns what each feature of a text adds to the label's score.
        text: The text.

    Returns:
        One contribution for each feature with a weight, largest absolute value first; with the
        label's bias they add up to its log-odds.
    """
    row = vectoriser.rows([text])
    added = parts(row)
    found: list[Contribution] = []
    offset = 0
    for part in vectoriser.parts:
        inside = (row.indices >= offset) & (row.indices < offset + len(part.vocabulary))
        features = (row.indices[inside] - offset).tolist()
        values = dict(zip(features, added[inside].tolist(), strict=True))
        by_word = part.name in (PIECES, STEMS)
        found += (_by_word if by_word else _by_feature)(part, text, values)
        offset += len(part.vocabulary)
    return sorted(found, key=lambda c: (-abs(c.weight), c.phrase))


def _by_feature(part: Part, text: str, values: Mapping[int, float]) -> Iterator[Contribution]:
    spans = _feature_spans(part, text)
    for feature, value in values.items():
        if value:
            yield Contribution(part.vocabulary.name(feature), part.name, value, spans[feature])


def _by_word(part: Part, text: str, values: Mapping[int, float]) -> Iterator[Contribution]:
    """Yield the contribution of each word's pieces, or of its stem."""
    words = word_spans(text)
    pieces = [part.vocabulary.word_ids(part.features_of(word)).tolist() for word, _, _ in words]
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
    """Return the places of each feature of a part in the text."""
    words = word_spans(first_lines([text])[0] if part.name == TITLE else text)
    ids = part.vocabulary.word_ids(word for word, _, _ in words)
    spans: dict[int, list[tuple[int, int]]] = {}
    for feature, (_, start, stop) in zip(ids.tolist(), words, strict=True):
        spans.setdefault(feature, []).append((start, stop))
    for place, feature in enumerate(part.vocabulary.pair_ids(ids).tolist()):
        spans.setdefault(feature, []).append((words[place][1], words[place + 1][2]))
    return {feature: tuple(places) for feature, places in spans.items() if feature >= 0}
