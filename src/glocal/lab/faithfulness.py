"""Faithfulness: do the words that an explanation names really carry the tag?

The best tag of every text is explained, the named words are removed from the text (or everything
else is), and the model reads the text again. What the tag's log-odds lose is compared with the loss
by as many random words (DeYoung et al. 2020, ERASER: comprehensiveness and sufficiency):

- comprehensiveness: the log-odds lost without the named words; high if they are needed;
- sufficiency: the log-odds lost with the named words alone; low if they are enough.

A fifth of the words of a text are named, one to five. The words of the whole model are judged by
the combined log-odds before calibration, those of each expert by its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.log_odds import log_odds
from glocal.predict.evaluation import COMBINED
from glocal.predict.explain import ALL, TagExplanation
from glocal.predict.text_words import WordPlaces
from glocal.progress import Progress, report
from glocal.table import Table, columns

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.predict.predictor import Predictor

_SHARE, _MOST = 5, 5  # one word in five is named, and no more than five
_CHUNK = 256  # texts explained before their variants are read
_CLIP = (1e-12, 1.0 - 2.0**-25)
_NAMED, _REST = "named", "random"


@dataclass(frozen=True)
class Faithfulness:
    """The mean loss in log-odds of the best tags, over texts.

    Args:
        expert: The expert, `combined` for the whole model.
        n_texts: Texts whose best tag has named words.
        without_named: Lost without the named words (comprehensiveness).
        without_random: Lost without as many random words.
        named_alone: Lost with the named words alone (sufficiency).
        random_alone: Lost with as many random words alone.
    """

    expert: str
    n_texts: int
    without_named: float
    without_random: float
    named_alone: float
    random_alone: float

    @property
    def ratio(self) -> float:
        """How many times as much the named words count as random ones."""
        lost = self.without_random
        return self.without_named / lost if lost > 0 else float("inf")


@dataclass(frozen=True)
class _Variant:
    """A text to read again.

    Attributes:
        place: The text it is made of.
        part: The expert whose words it is about.
        change: `without` some words, or with these `alone`.
        words: The words: named or random ones.
        text: The changed text.
    """

    place: int
    part: str
    change: str
    words: str
    text: str


def measure_faithfulness(
    predictor: Predictor,
    corpus: Corpus,
    *,
    seed: int = 0,
    draws: int = 3,
    progress: Progress | None = None,
) -> list[Faithfulness]:
    """Measure the explanation of every text's best tag.

    Args:
        predictor: The model.
        corpus: The texts; their labels are not looked at.
        seed: Random seed of the words that the named ones are compared with.
        draws: Draws of random words for each text; their losses are averaged.
        progress: Called with (texts done, texts).

    Returns:
        The whole model's faithfulness, and each expert's where there are several.
    """
    random = np.random.default_rng(seed)
    parts = [ALL, *(predictor.expert_names if len(predictor.expert_names) > 1 else ())]
    losses: dict[tuple[str, str, str], list[float]] = {}
    texts_of: dict[str, set[int]] = {part: set() for part in parts}
    for start in range(0, len(corpus), _CHUNK):
        texts = corpus.texts(start, start + _CHUNK)
        labels, variants = _explained(predictor, texts, parts, random, draws)
        places = np.array([variant.place for variant in variants], dtype=np.int64)
        whole = _log_odds(predictor, texts, labels, parts)
        changed = _log_odds(predictor, [v.text for v in variants], labels[places], parts)
        for number, v in enumerate(variants):
            lost = float(whole[v.part][v.place] - changed[v.part][number])
            losses.setdefault((v.part, v.change, v.words), []).append(lost)
            texts_of[v.part].add(start + v.place)
        report(progress, start + len(texts), len(corpus))
    return [_summary(part, len(texts_of[part]), losses) for part in parts]


def _explained(
    predictor: Predictor,
    texts: Sequence[str],
    parts: Sequence[str],
    random: np.random.Generator,
    draws: int,
) -> tuple[NDArray[np.int64], list[_Variant]]:
    """Return the best label of each text, and the variants to read by its explanation."""
    labels = np.zeros(len(texts), np.int64)
    variants: list[_Variant] = []
    for place, text in enumerate(texts):
        words = WordPlaces(text)
        if not len(words):
            continue
        most = min(_MOST, max(1, round(len(words) / _SHARE)))
        (tag,) = predictor.explain(text, k=1, words=most)
        labels[place] = predictor.labels.index[tag.id]
        for part in parts:
            changes = _changes(words, named_words(words, tag, part), random, draws)
            variants += [_Variant(place, part, *change) for change in changes]
    return labels, variants


def _changes(
    words: WordPlaces, named: Sequence[int], random: np.random.Generator, draws: int
) -> Iterator[tuple[str, str, str]]:
    """Yield the text without the named words, without all others, and both for random words."""
    if not 0 < len(named) < len(words):
        return
    every = np.arange(len(words))
    others = [random.permutation(every)[: len(named)] for _ in range(draws)]
    for kind, chosen in ((_NAMED, np.array(named)), *((_REST, other) for other in others)):
        rest = np.setdiff1d(every, chosen)
        yield "without", kind, words.without(chosen.tolist())
        yield "alone", kind, words.without(rest.tolist())


def _log_odds(
    predictor: Predictor, texts: Sequence[str], labels: NDArray[np.int64], parts: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Return the log-odds of one label for each text, by the model and by each expert."""
    found = predictor.predict(
        list(texts),
        k=1,
        candidates=labels[:, None],
        per_expert=len(parts) > 1,
        calibrated=False,
    )
    by_part = {ALL: found, **found.experts}
    return {name: log_odds(by_part[name].scores[:, 0], _CLIP) for name in parts}


def named_words(words: WordPlaces, tag: TagExplanation, expert: str) -> list[int]:
    """Return the words inside the spans of an expert."""
    spans = tag.spans_of(expert)
    return [
        number
        for number, (start, stop) in enumerate(words.places)
        if any(span.start <= start and stop <= span.end for span in spans)
    ]


def _summary(
    part: str, n_texts: int, losses: dict[tuple[str, str, str], list[float]]
) -> Faithfulness:
    def mean(change: str, words: str) -> float:
        found = losses.get((part, change, words), [])
        return float(np.mean(found)) if found else float("nan")

    return Faithfulness(
        COMBINED if part == ALL else part,
        n_texts,
        mean("without", _NAMED),
        mean("without", _REST),
        mean("alone", _NAMED),
        mean("alone", _REST),
    )


def faithfulness_table(rows: Sequence[Faithfulness], source: str) -> Table:
    """Return the measurements as a table."""
    heads = [
        *columns("text", "expert"),
        *columns("number", "texts", "without named", "without random", "ratio"),
        *columns("number", "named alone", "random alone"),
    ]
    cells = [
        (r.expert, r.n_texts, r.without_named, r.without_random, r.ratio, *alone)
        for r, alone in ((r, (r.named_alone, r.random_alone)) for r in rows)
    ]
    note = "Log-odds that the best tag of a text loses, on average."
    return Table(f"Faithfulness of explanations on {source}", heads, cells, note)


def to_dict(rows: Sequence[Faithfulness]) -> dict[str, Any]:
    """Return plain values for JSON."""
    values = {row.expert: {**asdict(row), "ratio": row.ratio} for row in rows}
    return {
        expert: {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in row.items()
        }
        for expert, row in values.items()
    }
