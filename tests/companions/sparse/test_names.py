"""Labels without a training text, scored by their names."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from glocal.companions.sparse.device_scorer import DeviceScorer
from glocal.companions.sparse.name_features import name_features, name_matcher, words_like
from glocal.companions.sparse.new_words import with_names
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_rows import as_csr
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.errors import ModelError
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.companions.sparse.made_up import log_odds

WORDS = sorted(
    [
        *("fish", "fishery", "fisheries", "fishermonger", "fist", "milk", "milks", "1234", "1235"),
        *("immunological", "immunologically", "immunoglobulin", "immune"),
    ]
)


def vocabulary():
    return Vocabulary(WORDS, np.zeros(0, np.int64), np.ones(len(WORDS), np.float32))


@pytest.mark.parametrize(
    ("word", "like"),
    [
        ("fisheries", {"fishery": 0.7}),
        ("fish", {"fishery": 0.7}),  # three letters more; "fisheries" has five
        ("milk", {"milks": 0.7}),
        ("milked", {"milk": 0.7, "milks": 0.7}),
        # Long endings of the longer word: up to six letters, and less than two fifths of it.
        ("immunology", {"immunological": 0.5, "immunologically": 0.5}),
        ("immunologically", {"immunological": 0.7}),
        ("1234", {}),
        ("fis", {}),
        ("wine", {}),
    ],
)
def test_words_are_like_when_only_their_ends_differ(word, like):
    found = {WORDS[feature]: weight for feature, weight in words_like(word, vocabulary())}
    assert found == like


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


def test_the_more_names_in_texts_were_wrong_the_less_likely_each_is(model_and_labels):
    model, labels = model_and_labels  # the names of 60 labels are in texts that do not have them
    fewer, fewer_labels = fitted(205)
    rng = np.random.default_rng(1)
    for label in range(200, 205):
        text, name = text_of(NAMES[label], rng), f"{label:03}"
        few = log_odds(fewer, text, fewer_labels.index[name])
        assert log_odds(model, text, labels.index[name]) < few


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


CONFIG = SparseConfig(min_words=1, max_words=1.0, pairs=False, title_weight=0.0, pieces="off")
TEXTS = ["public health of cattle", "health insurance", "public roads", "cattle and roads of steel"]


def matcher(names):
    vectoriser, _ = Vectoriser.fit(Corpus.from_texts(TEXTS), CONFIG)
    flat = [name for own in names for name in own]
    vectoriser, _ = with_names(vectoriser, flat, n_texts=len(TEXTS))
    return vectoriser, name_matcher(vectoriser, names)


def test_the_share_of_a_name_counts_rare_words_more_and_each_once():
    names = [["public health", "sanitation"], [], ["roads of zanzibar"], ["cattle"]]
    vectoriser, found = matcher(names)
    assert found.labels.tolist() == [0, 2, 3]
    known = vectoriser.parts[0].vocabulary
    idf = dict(zip(known.words, known.idf.tolist(), strict=True))
    unknown = np.log(1 + len(TEXTS)) + 1
    texts = ["public public roads", "sanitation", "zanzibar", "cattles", "nothing", ""]
    shares = found.found(vectoriser.rows(texts))
    of_roads = idf["roads"] + idf["of"] + unknown
    expected = [
        [idf["public"] / (idf["public"] + idf["health"]), idf["roads"] / of_roads, 0],
        [1, 0, 0],
        [0, unknown / of_roads, 0],
        [0, 0, 0],  # not a word of any text or name
        [0, 0, 0],
        [0, 0, 0],
    ]
    np.testing.assert_allclose(shares, expected, rtol=1e-5)
    rows, likeness = vectoriser.rows(texts), vectoriser.transform(texts) @ as_csr(found.weights)
    np.testing.assert_allclose(found.evidence(rows), likeness.toarray() * shares, rtol=1e-5)
    scores = np.log1p(100 * likeness.toarray() * shares)
    np.testing.assert_allclose(found.scores(rows), scores, rtol=1e-5)
    steeper = replace(found, slopes=np.array([1, 2, 3], np.float32))
    np.testing.assert_allclose(steeper.scores(rows), scores * [1, 2, 3], rtol=1e-5)


def test_words_like_those_of_a_name_are_found_in_part():
    vectoriser, found = matcher([["road"], ["publicizes"]])
    shares = found.found(vectoriser.rows(["roads", "road roads", "public"]))
    np.testing.assert_allclose(shares, [[0.7, 0], [1, 0], [0, 0.5]], rtol=1e-6)


def test_words_of_names_leave_the_other_features_of_a_text_as_they_are():
    plain, _ = Vectoriser.fit(Corpus.from_texts(TEXTS), CONFIG)
    named, places = with_names(plain, ["zebra crossing", "roads"], n_texts=len(TEXTS))
    assert places.tolist() == list(range(plain.n_features)) == list(range(named.n_trained))
    assert [part.name for part in named.parts] == ["text", "names"]
    assert named.parts[1].vocabulary.words == ["crossing", "zebra"]
    text = ["a zebra on public roads"]
    before, after = plain.transform(text).toarray(), named.transform(text).toarray()
    np.testing.assert_array_equal(after[:, : plain.n_features], before)
    idf = named.parts[0].vocabulary.idf[named.parts[0].vocabulary.index["roads"]]
    place = named.parts[0].vocabulary.index["roads"]
    unknown = np.log(1 + len(TEXTS)) + 1
    assert after[0, -1] == pytest.approx(after[0, place] * unknown / idf)
    more, places = with_names(named, ["yak zebra"], n_texts=len(TEXTS))
    assert more.parts[1].vocabulary.words == ["crossing", "yak", "zebra"]
    assert places[-2:].tolist() == [plain.n_features, plain.n_features + 2]
    unchanged, places = with_names(named, ["public"], n_texts=len(TEXTS))
    np.testing.assert_array_equal(places, np.arange(named.n_features))
    assert unchanged.n_features == named.n_features


def unseen_model():
    train = Corpus.from_texts(TEXTS, [["a"], ["b"], ["a"], ["b"]])
    names = ["first", "second", "zanzibar roads", "steel cattle", "insurance"]
    table = LabelTable(list("abcde"), names, alt_names=[(), (), ("zebra",), (), ()])
    labels = LabelSpace.build(train, table=table, score_unseen=True)
    return SparseModel.fit(train, labels, CONFIG), labels


def test_names_of_words_that_no_training_text_has_are_found_and_explained(tmp_path):
    model, _ = unseen_model()
    for text in ("roads of zanzibar", "zebra", "public health in zanzibar"):
        parts = model.explain(text, 2)
        total = model.scorer.biases[2] + sum(part.weight for part in parts)
        row = model.vectoriser.rows([text])
        assert total == pytest.approx(model.scorer.scores(row)[0, 2], abs=1e-4)
        best = parts[0]
        assert all(text[start:stop] == best.phrase for start, stop in best.spans)
        assert best.phrase in ("zanzibar", "zebra")
    model.save(tmp_path / "model")
    again = SparseModel.load(tmp_path / "model")
    texts = ["roads of zanzibar", "steel for cattle", "zebra", "…"]
    for k in (1, 5):
        for found, expected in zip(again.topk(texts, k), model.topk(texts, k), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_text_of_unknown_words_alone_has_the_frequent_labels_and_the_names_it_has():
    model, _ = unseen_model()
    prior = np.array([1.0, 0.5, -3.0, -3.0, -3.0], np.float32)
    found, scores = model.topk(["…", "zebra"], 5, prior=prior)
    assert found[0].tolist() == [0, 1, 2, 3, 4]
    assert scores[1, list(found[1]).index(2)] > scores[0, 2]
    for label in (0, 1, 3, 4):
        assert scores[1, list(found[1]).index(label)] == scores[0, label]


def test_a_matcher_follows_the_labels():
    vectoriser, found = matcher([["public"], ["health", "cattle"], ["roads"], ["steel"]])
    texts = vectoriser.rows(["public health", "cattle and roads", "steel"])
    scores, shares = found.scores(texts), found.found(texts)
    swapped = csr_matrix(np.eye(4, dtype=np.float32)[:, [3, 1]])  # without 0 and 2
    kept = found.with_labels(swapped)
    np.testing.assert_allclose(kept.scores(texts), scores[:, [3, 1]], rtol=1e-6)
    merged = csr_matrix(np.array([[0.5, 0], [0, 1], [0.5, 0], [0, 0]], np.float32))
    both = found.with_labels(merged)
    np.testing.assert_allclose(both.found(texts)[:, 0], shares[:, [0, 2]].max(axis=1), rtol=1e-6)
    assert both.shares.shape[1] == 4
    joined = kept.joined(found.with_labels(merged), offset=7)
    assert joined.labels.tolist() == [0, 1, 7, 8]
    np.testing.assert_allclose(
        joined.scores(texts), np.hstack([kept.scores(texts), both.scores(texts)]), rtol=1e-6
    )
    some = found.scores_of(np.array([2, 9, 0]), texts)
    np.testing.assert_allclose(some[:, [0, 2]], scores[:, [2, 0]], rtol=1e-6)
    assert not some[:, 1].any()


@pytest.mark.parametrize("names", [[["public"], ["health", "cattle"]], [["public"], ["health"]]])
def test_gains_are_the_scores_that_are_not_zero(names):
    vectoriser, found = matcher(names)
    texts = vectoriser.rows(["public health", "cattle and roads", "nothing of it", "health"])
    found = replace(found, labels=np.array([3, 8]))
    rows, labels, gains = found.gains(texts)
    dense = np.zeros((4, 9), np.float32)
    dense[rows, labels] = gains
    np.testing.assert_array_equal(dense[:, [3, 8]], found.scores(texts))
    assert len(gains) == np.count_nonzero(found.scores(texts))


def test_a_device_adds_the_scores_of_names():
    model, _ = unseen_model()
    texts = model.vectoriser.rows(["roads of zanzibar", "steel for cattle", "zebra", "…"])
    scores = DeviceScorer(model.scorer, "cpu").scores(texts).numpy()
    np.testing.assert_allclose(scores, model.scorer.scores(texts), rtol=1e-5)


def test_models_before_the_matcher_are_read(tmp_path):
    model, _ = unseen_model()
    model = SparseModel(
        model.vectoriser, replace(model.scorer, names=None), model.config, model.memory
    )
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "sparse.json"
    about = json.loads(path.read_text())
    about.pop("names")
    about["memory"]["names"]["slope"] = 30.0
    path.write_text(json.dumps(about | {"format": 4}))
    old = SparseModel.load(tmp_path / "model")
    assert old.scorer.names is None
    # The score of a likeness of a tenth is what it was.
    assert old.memory.names.slope * np.log1p(100 * 0.1) == pytest.approx(30.0 * 0.1)
    np.testing.assert_array_equal(old.topk(TEXTS, 5)[1], model.topk(TEXTS, 5)[1])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels", lambda a: a[::-1]),
        ("labels", lambda a: a + 99),
        ("bounds", lambda a: np.zeros_like(a)),
        ("bounds", lambda a: a[:-1]),
        ("slopes", lambda a: a[:-1]),
        ("slopes", lambda a: a * np.nan),
        ("shares-indices", lambda a: a + 99),
    ],
)
def test_a_damaged_matcher_is_refused(name, change, tmp_path):
    model, _ = unseen_model()
    model.save(tmp_path / "model")
    path = tmp_path / "model" / f"name-{name}.npy"
    np.save(path, change(np.load(path)))
    with pytest.raises(ModelError, match="not a readable sparse model"):
        SparseModel.load(tmp_path / "model")
