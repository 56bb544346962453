"""Short descriptions of labels: their names, or the most characteristic words of their texts.

A label without a name is described by the words of its training texts with the highest TF-IDF. A
bounded number of texts is read for each such label, so that the cost does not grow with the corpus.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from glocal.config import TeacherConfig
from glocal.data.corpus import Corpus
from glocal.encoders.word_lookup import plain_words
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelEntry

TEXTS_PER_LABEL = 20
SHORTEST_WORD = 3  # letters


def describe_labels(
    entries: Sequence[LabelEntry],
    train: Corpus,
    labels: LabelSpace,
    config: TeacherConfig,
) -> list[str]:
    """Return the description of each label.

    Args:
        entries: The labels of the label space in its order, then any others.
        train: The training texts.
        labels: The label space.
        config: The most words of a description, and the words read of each training text.
    """
    nameless = [p for p, entry in enumerate(entries[: len(labels)]) if not _text(entry)]
    found = _marking_words(train, labels, nameless, config)
    described = [
        found.get(place) or _text(entry) or entry.id for place, entry in enumerate(entries)
    ]
    return [" ".join(text.split()[: config.words]) for text in described]


def _text(entry: LabelEntry) -> str:
    """Return name and description; an empty string if the name only repeats the id."""
    name = "" if entry.name == entry.id else entry.name
    return f"{name} {entry.description}".strip()


def _marking_words(
    train: Corpus, labels: LabelSpace, places: Sequence[int], config: TeacherConfig
) -> dict[int, str]:
    """Return the most characteristic words of the texts of the labels at some places."""
    if not places:
        return {}
    by_label = labels.encode(train)[:, places].tocsc()
    texts_of = [
        column_texts[:TEXTS_PER_LABEL]
        for column_texts in np.split(by_label.indices, by_label.indptr[1:-1])
    ]
    read = np.unique(np.concatenate(texts_of))
    counts = {
        int(row): _counts(text, config.text_words)
        for row, text in zip(read, train.take(read).texts(), strict=True)
    }
    frequencies = Counter(word for count in counts.values() for word in count)
    rarity = {word: math.log((1 + len(counts)) / (0.5 + n)) for word, n in frequencies.items()}
    return {
        place: " ".join(_best([counts[int(row)] for row in rows], rarity, config.words))
        for place, rows in zip(places, texts_of, strict=True)
    }


def _counts(text: str, text_words: int) -> Counter[str]:
    words = plain_words(text, text_words)
    return Counter(w for w in words if len(w) >= SHORTEST_WORD and not w.isdigit())


def _best(counts: Sequence[Counter[str]], rarity: dict[str, float], words: int) -> list[str]:
    weights: Counter[str] = Counter()
    for count in counts:
        total = sum(count.values()) or 1
        for word, n in count.items():
            weights[word] += n / total * rarity[word]  # type: ignore[assignment]
    return [
        word for word, _ in sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:words]
    ]
