"""Words of further texts as features of a trained model."""

import numpy as np

from glocal.companions.sparse.new_words import spread_memory, spread_scorer, with_words
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace
from tests.companions.sparse.made_up import corpus

CONFIG = SparseConfig(pieces="on", min_words=1, min_pairs=1, title_weight=0.5)
FURTHER = ["a zebra on the aardvark trail\nand more", "the zebra again", "one okapi"]


def names(vectoriser):
    return [
        (part.name, part.vocabulary.name(feature))
        for part in vectoriser.parts
        for feature in range(len(part.vocabulary))
    ]


def test_words_of_two_texts_become_features_between_the_old_ones():
    vectoriser, _ = Vectoriser.fit(corpus(30), CONFIG)
    wider, places = with_words(vectoriser, FURTHER, n_texts=30)
    old, new = names(vectoriser), names(wider)
    assert [new[place] for place in places] == old
    added = set(new) - set(old)
    assert ("text", "zebra") in added
    assert not {("text", "okapi"), ("title", "okapi"), ("text", "aardvark")} & added
    part = wider.parts[0]
    assert part.vocabulary.words == sorted(part.vocabulary.words)
    assert (np.diff(part.vocabulary.pairs) > 0).all()
    idf = part.vocabulary.idf[part.vocabulary.index["zebra"]]
    assert idf == np.float32(np.log(34 / 3) + 1)


def test_texts_without_new_words_keep_features_and_scores():
    train = corpus(60)
    labels = LabelSpace.build(train)
    model = SparseModel.fit(train, labels, CONFIG)
    wider, places = with_words(model.vectoriser, FURTHER, n_texts=60)
    texts, size = list(train.texts())[:20], wider.n_features
    old, new = model.vectoriser.transform(texts), wider.transform(texts)
    np.testing.assert_array_equal(new.toarray()[:, places], old.toarray())
    assert new.nnz == old.nnz
    scorer = spread_scorer(model.scorer, places, size, n_words=wider.n_words)
    np.testing.assert_array_equal(scorer.scores(new), model.scorer.scores(old))
    memory = spread_memory(model.memory, places, size)
    kept, before = memory.sample.features, model.memory.sample.features
    assert kept.shape == (before.shape[0], size)
    np.testing.assert_array_equal(kept.toarray()[:, places], before.toarray())


def test_a_text_without_words_adds_nothing():
    vectoriser, _ = Vectoriser.fit(Corpus.from_texts(["one two", "two three"], None), CONFIG)
    wider, places = with_words(vectoriser, ["", "…"], n_texts=2)
    assert names(wider) == names(vectoriser)
    np.testing.assert_array_equal(places, np.arange(vectoriser.n_features))
