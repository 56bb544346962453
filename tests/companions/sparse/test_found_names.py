"""Names of labels that have training texts, found in texts."""

from dataclasses import replace

import numpy as np
import pytest

from glocal.companions.sparse.found_names import found_names
from glocal.companions.sparse.name_features import name_matcher
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.companions.sparse.made_up import explained, log_odds

CONFIG = SparseConfig(min_words=1, max_words=1.0, pairs=False, title_weight=0.0, pieces="off")
TEXTS = ["inland fishery", "fisheries", "milk of cows", "milk", "harbour", "milk prices"]
NAMES = [["fishery"], ["inland harbour"], ["milk", "cows"], []]


@pytest.fixture
def fitted():
    vectoriser, features = Vectoriser.fit(Corpus.from_texts(TEXTS), CONFIG)
    return vectoriser, features


def test_a_name_is_found_as_a_whole_and_once(fitted):
    vectoriser, features = fitted
    matcher = name_matcher(vectoriser, NAMES, trained=True)
    rows, labels, gains = matcher.gains(features)
    # "fisheries" has another ending than "fishery"; "milk of cows" has two names of one label.
    expected = [(0, 0), (1, 0), (2, 2), (3, 2), (5, 2)]
    assert list(zip(rows.tolist(), labels.tolist(), strict=True)) == expected
    assert gains == pytest.approx(1)
    scores = np.zeros((len(TEXTS), 3), np.float32)
    scores[rows, labels] = gains
    np.testing.assert_allclose(matcher.scores(features), scores, rtol=1e-6)


def test_names_of_labels_with_and_without_texts_are_joined(fitted):
    vectoriser, features = fitted
    trained = name_matcher(vectoriser, [NAMES[0], [], NAMES[2]], trained=True)
    unseen = name_matcher(vectoriser, [[], ["harbour"], []])
    both = trained.joined(unseen, offset=0).in_order()
    assert both.labels.tolist() == [0, 1, 2]
    assert both.trained.tolist() == [True, False, True]
    found = both.scores(features)
    np.testing.assert_allclose(found[:, [0, 2]], trained.scores(features), rtol=1e-6)
    np.testing.assert_allclose(found[:, [1]], unseen.scores(features), rtol=1e-6)
    rows, labels, gains = both.gains(features)
    np.testing.assert_allclose(found[rows, labels], gains, rtol=1e-6)


def test_names_of_many_texts_count_for_less(fitted):
    vectoriser, features = fitted
    space = LabelSpace.build(
        Corpus.from_texts(TEXTS, [["a"], ["b"], ["c"], ["c"], ["a"], ["b"]]),
        table=LabelTable(ids=["a", "b", "c"], names=["harbour", "milk", "of"]),
    )
    matcher = found_names(vectoriser, space, features, np.array([2, 2, 0]))
    assert matcher.labels.tolist() == [0, 1]  # the last has no texts here
    assert matcher.slopes == pytest.approx([1, (2 / 3) ** 0.5])


@pytest.fixture(scope="module")
def model():
    """Titles of three words, one of which is sometimes the name of a label; others tell nothing."""
    rng = np.random.default_rng(0)
    n_labels, n_texts = 1100, 3000
    label = np.concatenate([np.arange(n_labels), rng.integers(n_labels, size=n_texts - n_labels)])
    says = rng.random(n_texts) < 0.4  # few labels have it in every text
    words = rng.integers(500, size=(n_texts, 2))
    texts = [
        f"{f'name{own}' if said else 'unnamed'} other{first} other{second}"
        for own, said, (first, second) in zip(label, says, words.tolist(), strict=True)
    ]
    train = Corpus.from_texts(texts, [[f"L{own:04}"] for own in label])
    ids = [f"L{own:04}" for own in range(n_labels)]
    table = LabelTable(ids=ids, names=[f"name{own}" for own in range(n_labels)])
    config = replace(CONFIG, negatives="random", sample=100, iterations=3)
    return SparseModel.fit(train, LabelSpace.build(train, table=table), config, threads=1)


def test_names_have_a_slope_that_held_out_texts_give(model):
    names = model.scorer.names
    assert names is not None
    assert names.trained.all()
    assert (names.slopes > 0.5).all()
    without = replace(model, scorer=replace(model.scorer, names=None))
    text = "name7 other1 other2"
    gain = log_odds(model, text, 7) - log_odds(without, text, 7)
    assert gain == pytest.approx(float(names.slopes[7]), rel=1e-4)
    assert log_odds(model, text, 8) == pytest.approx(log_odds(without, text, 8))


def test_names_found_are_part_of_the_explanation(model):
    text = "name7 other1 other2"
    assert explained(model, text, 7) == pytest.approx(log_odds(model, text, 7), abs=0.01)
    assert model.explain(text, 7)[0].phrase == "name7"


def test_names_found_are_stored(model, tmp_path):
    model.save(tmp_path / "model")
    stored = SparseModel.load(tmp_path / "model")
    np.testing.assert_array_equal(stored.scorer.names.trained, model.scorer.names.trained)
    texts = ["name7 other1", "name8", "unnamed other3"]
    for found, expected in zip(stored.topk(texts, 5), model.topk(texts, 5), strict=True):
        np.testing.assert_array_equal(found, expected)
