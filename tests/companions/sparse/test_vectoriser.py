import itertools
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from glocal.companions.sparse import vectoriser as module
from glocal.companions.sparse import word_features as vocabulary_module
from glocal.companions.sparse.vectoriser import TITLE, Vectoriser, settled
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from tests.companions.sparse.made_up import corpus

CONFIG = SparseConfig(pieces="off", min_words=2, min_pairs=2, title_weight=0.5)


def phrases(text, vocabulary_words=None):
    words = re.findall(r"[a-z0-9]+", text.lower())
    known = [w if vocabulary_words is None or w in vocabulary_words else None for w in words]
    pairs = [f"{a} {b}" for a, b in itertools.pairwise(known) if a and b]
    return [word for word in known if word], pairs


def naive_part(train, texts):
    """TF-IDF with dictionaries, one text at a time, as the documentation has it."""
    in_texts = Counter(word for text in train for word in set(phrases(text)[0]))
    words = {word for word, n in in_texts.items() if n >= CONFIG.min_words}
    pair_texts = Counter(pair for text in train for pair in set(phrases(text, words)[1]))
    kept = {w: in_texts[w] for w in words}
    kept |= {pair: n for pair, n in pair_texts.items() if n >= CONFIG.min_pairs}
    rows = []
    for text in texts:
        counts = Counter(f for group in phrases(text, words) for f in group if f in kept)
        row = {
            f: (1 + math.log(n)) * (math.log((1 + len(train)) / (1 + kept[f])) + 1)
            for f, n in counts.items()
        }
        rows.append(unit(row))
    return rows


def unit(row):
    length = math.sqrt(sum(value**2 for value in row.values()))
    return {key: value / length for key, value in row.items()} if length else row


def naive(train, texts):
    bodies = naive_part(train, texts)
    titles = naive_part([t.split("\n")[0] for t in train], [t.split("\n")[0] for t in texts])
    return [
        unit(
            {("text", f): v for f, v in body.items()}
            | {("title", f): CONFIG.title_weight * v for f, v in title.items()}
        )
        for body, title in zip(bodies, titles, strict=True)
    ]


def as_dictionaries(vectoriser, matrix):
    names = [(part.name, i) for part in vectoriser.parts for i in range(len(part.vocabulary))]
    by_name = {part.name: part.vocabulary for part in vectoriser.parts}
    rows = []
    for start, stop in itertools.pairwise(matrix.indptr):
        cells = zip(matrix.indices[start:stop], matrix.data[start:stop], strict=True)
        row = {(names[c][0], by_name[names[c][0]].name(names[c][1])): v for c, v in cells}
        rows.append(row)
    return rows


def same(left, right):
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in ("indptr", "indices"))


@pytest.fixture(scope="module")
def train():
    return corpus(60)


def test_like_a_naive_implementation(train):
    vectoriser, matrix = Vectoriser.fit(train, CONFIG)
    others = ["Title sign1a\nSign1a, sign1b common3 common4 nothing", "sign2a sign2a sign2b"]
    found = as_dictionaries(vectoriser, matrix) + as_dictionaries(
        vectoriser, vectoriser.transform(others)
    )
    expected = naive(train.texts(), train.texts() + others)
    assert len(found) == len(expected) == 62
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_and_threads_change_nothing(train, monkeypatch, threads):
    whole, matrix = Vectoriser.fit(train, CONFIG)
    monkeypatch.setattr(module, "BATCH_TEXTS", 7)
    monkeypatch.setattr(module, "_PREDICTED_TEXTS", 5)
    monkeypatch.setattr(vocabulary_module, "MERGE_PAIRS", 50)
    parts, streamed = Vectoriser.fit(train, CONFIG, threads=threads)
    assert parts.parts[0].vocabulary.words == whole.parts[0].vocabulary.words
    assert same(streamed, matrix)
    np.testing.assert_array_equal(streamed.data, matrix.data)
    again = parts.transform(train.texts(), threads=threads)
    assert same(again, matrix)
    np.testing.assert_allclose(again.data, matrix.data, rtol=1e-6)


def test_texts_without_known_words_have_empty_rows(train):
    vectoriser, _ = Vectoriser.fit(train, CONFIG)
    matrix = vectoriser.transform(["", "quite unknown vocabulary", "sign1a"])
    assert np.diff(matrix.indptr).tolist() == [0, 0, 2]
    assert vectoriser.transform([]).shape == (0, vectoriser.n_features)


def test_without_pairs_and_titles(train):
    vectoriser, matrix = Vectoriser.fit(train, replace(CONFIG, pairs=False, title_weight=0))
    (part,) = vectoriser.parts
    assert len(part.vocabulary) == len(part.vocabulary.words) == matrix.shape[1]


def test_words_of_too_many_texts_serve_pairs_alone(monkeypatch):
    monkeypatch.setattr(vocabulary_module, "FREQUENT_TEXTS", 0)
    texts = ["the law of fish", "the law of milk", "the rule of law", "a law of fish"]
    rare = {"min_words": 1, "min_pairs": 1, "title_weight": 0}
    config = replace(CONFIG, **rare, max_words=0.5, max_pairs=0.9)
    vectoriser, _ = Vectoriser.fit(Corpus.from_texts(texts), config)
    (row,) = as_dictionaries(vectoriser, vectoriser.transform(["the law of fish"]))
    assert {name for _, name in row} == {"fish", "the law", "law of", "of fish"}


def test_progress_counts_texts(train):
    seen = []
    Vectoriser.fit(train, CONFIG, progress=lambda stage: lambda *done: seen.append((stage, *done)))
    assert seen == [("reading words", 60, 60)]


@pytest.mark.parametrize("texts", [["the red cat"], ["red cat", "blue dog"], ["!", "?"]])
def test_texts_without_a_word_in_common_have_no_features(texts):
    vectoriser, features = Vectoriser.fit(Corpus.from_texts(texts), CONFIG)
    assert vectoriser.n_features == 0
    assert features.shape == (len(texts), 0)


def test_pieces_are_features_of_their_own():
    texts = ["Heart attack", "heartburn!", "attack dogs", "a dog"]
    config = replace(CONFIG, pieces="on", min_words=1, pairs=False, title_weight=0)
    vectoriser, matrix = Vectoriser.fit(Corpus.from_texts(texts), config)
    words, pieces = vectoriser.parts
    assert (words.name, pieces.name, pieces.weight) == ("text", "pieces", 1.0)
    # Pieces of at least two texts; spaces mark where words begin and end.
    expected = [" att", " dog", " hea", "ack ", "atta", "eart", "hear", "tack", "ttac"]
    assert pieces.vocabulary.words == expected
    again = vectoriser.transform(texts)
    assert same(again, matrix)
    (row,) = as_dictionaries(vectoriser, vectoriser.transform(["heartless"]))
    assert {name for part, name in row if part == "pieces"} == {" hea", "hear", "eart"}
    assert not {name for part, name in row if part == "text"}


@pytest.mark.parametrize(
    ("length", "n_texts", "pieces", "min_words"),
    [(50, 30, "on", 1), (51, 30, "off", 1), (3, 60, "on", 2)],
)
def test_what_is_left_to_the_texts(monkeypatch, length, n_texts, pieces, min_words):
    monkeypatch.setattr(module, "FEW_TEXTS", 60)
    texts = Corpus.from_texts(["word " * length] * n_texts)
    found = settled(SparseConfig(), texts)
    assert (found.pieces, found.min_words) == (pieces, min_words)
    given = SparseConfig(pieces="off", min_words=5, title_weight=0.0)
    assert settled(given, texts) == given


def test_texts_of_one_line_have_no_title(train):
    assert settled(SparseConfig(), train).title_weight == SparseConfig().title_weight
    lines = Corpus.from_texts(["a line", "another line\n"])
    assert settled(SparseConfig(), lines).title_weight == 0
    vectoriser, _ = Vectoriser.fit(lines, SparseConfig())
    assert TITLE not in [part.name for part in vectoriser.parts]
