"""Stems of words as features."""

import pytest

from glocal.companions.sparse import stems
from glocal.companions.sparse.name_features import name_features
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.companions.sparse.words import split_words
from glocal.config import SparseConfig
from glocal.config.expert_settings import LANGUAGES
from glocal.data.corpus import Corpus
from glocal.errors import MissingExtraError
from glocal.vocabulary.label_space import LabelSpace

CONFIG = SparseConfig(pieces="off", pairs=False, min_words=1, stems="german", title_weight=0.0)
TEXTS = ["Die Häuser der Stadt", "Ein Fisch im Wasser", "Viele Fische, keine Stadt"] * 4
LABELS = [["house"], ["fish"], ["fish"]] * 4


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_a_stemmer(language):
    assert len(stems.stems_of(["word"], language)) == 1


def test_forms_of_a_word_share_a_stem():
    batch = stems.stemmed(split_words(["Häuser und Haus", "das Haus"]), "german")
    assert batch.lengths.tolist() == [3, 2]
    assert [batch.words[code] for code in batch.codes] == ["haus", "und", "haus", "das", "haus"]
    assert stems.stemmed(split_words([""]), "german").words == []


def test_stems_are_features_beside_words(tmp_path):
    corpus = Corpus.from_texts(TEXTS, LABELS)
    model = SparseModel.fit(corpus, LabelSpace.build(corpus), CONFIG)
    house = LabelSpace.build(corpus).index["house"]
    (indices, _) = model.topk(["das Haus"], 1)  # the word itself is in no text
    assert indices[0, 0] == house
    found = model.explain("Im alten Haus", house)
    assert (found[0].part, found[0].phrase, found[0].spans) == ("stems", "haus", ((9, 13),))
    model.save(tmp_path / "model")
    again = SparseModel.load(tmp_path / "model")
    assert again.vectoriser.parts[-1].language == "german"
    assert (again.topk(["das Haus"], 1)[1] == model.topk(["das Haus"], 1)[1]).all()


def test_names_match_by_their_stems():
    vectoriser, features = Vectoriser.fit(Corpus.from_texts(TEXTS, LABELS), CONFIG)
    names = name_features(vectoriser, ["Haus", "Fisch"])
    scores = (features @ names).toarray()
    assert scores[0, 0] > scores[0, 1]
    assert scores[2, 1] > scores[2, 0]


def test_no_stems_by_default():
    vectoriser, _ = Vectoriser.fit(Corpus.from_texts(TEXTS, LABELS), SparseConfig())
    assert "stems" not in [part.name for part in vectoriser.parts]


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "Stemmer", None)
    monkeypatch.setattr(stems, "_LOCAL", type(stems._LOCAL)())
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[stems\]'"):
        stems.stems_of(["word"], "german")
