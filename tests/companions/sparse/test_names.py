"""Labels without a training text, scored by their names."""

import numpy as np
import pytest

from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.unseen_labels import name_features, words_like
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.companions.sparse.made_up import log_odds

WORDS = sorted(
    ["fish", "fishery", "fisheries", "fishermonger", "fist", "milk", "milks", "1234", "1235"]
)


def vocabulary():
    return Vocabulary(WORDS, np.zeros(0, np.int64), np.ones(len(WORDS), np.float32))


@pytest.mark.parametrize(
    ("word", "like"),
    [
        ("fisheries", ["fishery"]),
        ("fish", ["fishery"]),  # three letters more; "fisheries" has five
        ("milk", ["milks"]),
        ("milked", ["milk", "milks"]),
        ("1234", []),
        ("fis", []),
        ("wine", []),
    ],
)
def test_words_are_like_when_only_their_ends_differ(word, like):
    assert [WORDS[feature] for feature in words_like(word, vocabulary())] == like


@pytest.mark.parametrize("pieces", ["on", "off"])
def test_names_have_the_features_of_words_like_theirs(pieces):
    config = SparseConfig(min_words=1, max_words=1.0, pairs=False, title_weight=0.0, pieces=pieces)
    vectoriser, _ = Vectoriser.fit(Corpus.from_texts(["milk fishery", "milks wine", "x"]), config)
    assert len(vectoriser.parts) == 1 + (pieces == "on")
    words = vectoriser.parts[0].vocabulary.words
    matrix = name_features(vectoriser, ["fisheries milk", "gold", ""]).toarray()
    idf = vectoriser.parts[0].vocabulary.idf
    expected = np.zeros(len(words))
    expected[words.index("milk")] = idf[words.index("milk")]
    for word in ("milks", "fishery"):
        expected[words.index(word)] = 0.7 * idf[words.index(word)]
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(matrix[: len(words), 0], expected, rtol=1e-5)
    assert not matrix[len(words) :].any()
    assert not matrix[:, 1:].any()


LETTERS = list("bcdfghklmnprstvz")
NAMES = ["".join(w) for w in np.random.default_rng(3).choice(LETTERS, size=(260, 7))]
FREQUENT = 259  # an unseen label whose name is in many texts


def table(n_labels):
    ids = [f"{i:03}" for i in range(n_labels)]
    return LabelTable(ids, [*NAMES, *(f"never {i}" for i in ids)][:n_labels])


def text_of(name, rng):
    words = [f"filler{i}" for i in rng.integers(60, size=12)]
    return " ".join([*words[:6], name, *words[6:]])


def training_texts():
    """Of 200 labels, 80 of them with one text; names of 60 others are in texts they do not tag."""
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for label in [*range(120)] * 3 + [*range(120, 200)]:
        texts.append(text_of(NAMES[label] if rng.random() < 0.5 else "filler0", rng))
        labels.append([f"{label:03}"])
    for label in [*range(200, 260)] * 2 + [FREQUENT] * 60:
        texts.append(text_of(NAMES[label], rng))
        labels.append([f"{rng.integers(120):03}"])
    return Corpus.from_texts(texts, labels)


def fitted(n_labels=260):
    train = training_texts()
    labels = LabelSpace.build(train, table=table(n_labels), score_unseen=True)
    return SparseModel.fit(train, labels, SparseConfig(pairs=False, title_weight=0)), labels


@pytest.fixture(scope="module")
def model_and_labels():
    return fitted()


def unseen_texts():
    rng = np.random.default_rng(1)
    chosen = rng.integers(200, 259, size=200)
    return [text_of(NAMES[i], rng) for i in chosen], [f"{i:03}" for i in chosen]


def test_unseen_labels_are_found_by_their_names(model_and_labels):
    model, labels = model_and_labels
    unseen = labels.counts == 0
    assert unseen.sum() == 60
    texts, gold = unseen_texts()
    found, scores = model.topk(texts, 1, allowed=unseen)
    assert np.mean([labels.ids[i] for i in found[:, 0]] == np.array(gold)) > 0.95
    assert 0.001 < np.median(scores) < 0.5, "probable, and less so than labels that were seen"


def test_a_name_in_many_texts_without_the_label_speaks_against_it(model_and_labels):
    model, labels = model_and_labels
    biases = [model.scorer.biases[labels.index[f"{i:03}"]] for i in range(200, 260)]
    assert biases[FREQUENT - 200] < min(biases[:-1]) - 0.5


def test_the_more_labels_were_never_seen_the_less_likely_each_is(model_and_labels):
    model, labels = model_and_labels
    more, more_labels = fitted(800)
    texts, gold = unseen_texts()
    for text, name in zip(texts, gold, strict=True):
        fewer = log_odds(model, text, labels.index[name])
        assert log_odds(more, text, more_labels.index[name]) < fewer


def test_too_few_rare_labels_leave_a_usual_slope():
    train = Corpus.from_texts(["cod milk", "milk", "cod wine"], [["a"], ["b"], ["a"]])
    labels = LabelSpace.build(
        train, table=LabelTable(["a", "b", "c"], ["1", "2", "wines"]), score_unseen=True
    )
    model = SparseModel.fit(train, labels, SparseConfig(min_words=1, max_words=1.0))
    assert log_odds(model, "wine", 2) > log_odds(model, "cod", 2) + 2.3


def test_other_names_count_as_the_name():
    train = Corpus.from_texts(
        ["on cod and milk", "on milk", "on cod", "milk trade"], [["a"], ["b"], ["a"], ["b"]]
    )
    table = LabelTable(["a", "b", "c"], ["x", "y", "gadus"], alt_names=[(), (), ("cod", "17")])
    labels = LabelSpace.build(train, table=table, score_unseen=True)
    model = SparseModel.fit(train, labels, SparseConfig(min_words=1, max_words=1.0))
    assert [part.phrase for part in model.explain("cod milk", 2)][:1] == ["cod"]


def test_relatives_tell_the_subject_of_a_name():
    # "bank" is a label of two subjects; texts with either's other labels show which one is meant.
    money, river = ["loan", "interest"], ["water", "fish"]
    texts = [f"on {a} and {b} number{i}" for i in range(8) for a, b in (money, river)]
    train = Corpus.from_texts(texts, [["loans"], ["fishes"]] * 8)
    table = LabelTable(
        ["loans", "fishes", "m", "r", "x", "y"],
        ["lending", "swimming", "finance", "nature", "bank", "bank"],
        parents=[("m",), ("r",), (), (), ("m",), ("r",)],
    )
    labels = LabelSpace.build(train, table=table, score_unseen=True)
    model = SparseModel.fit(train, labels, SparseConfig(min_words=1, max_words=1.0))
    of_money, of_river = labels.index["x"], labels.index["y"]
    assert log_odds(model, "a bank gives a loan with interest", of_money) > log_odds(
        model, "a bank gives a loan with interest", of_river
    )
    assert log_odds(model, "fish in the water near the bank", of_river) > log_odds(
        model, "fish in the water near the bank", of_money
    )
