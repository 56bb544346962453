"""Pieces of words are tried on a part of the training texts."""

from dataclasses import replace

import numpy as np
import pytest

from glocal.companions.sparse import pieces_trial
from glocal.companions.sparse.pieces_trial import with_decided_pieces
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace

STEMS = [f"{a}{b}{c}" for a in ("fisch", "wald", "steuer", "zoll") for b in ("kar", "mun", "del")
         for c in ("torwart", "pelzen")]  # fmt: skip


def texts(n, *, compounds, seed=0):
    """Texts of 60 words; a label's word is the same, or joined to words found nowhere else."""
    rng = np.random.default_rng(seed)

    def other():
        return "".join(rng.choice(list("bcghjnqvwxyz"), 5))

    found, labels = [], []
    for _ in range(n):
        label = int(rng.integers(len(STEMS)))
        own = [f"{other() if compounds else 'immer'}{STEMS[label]}" for _ in range(3)]
        found.append(" ".join([*own, *(f"usual{w}" for w in rng.integers(200, size=57))]))
        labels.append([f"L{label}"])
    return Corpus.from_texts(found, labels)


@pytest.fixture(autouse=True)
def smaller(monkeypatch):
    monkeypatch.setattr(pieces_trial, "_FEWEST", 100)
    monkeypatch.setattr(pieces_trial, "_TEXTS", 300)


@pytest.mark.parametrize(("compounds", "expected"), [(True, "on"), (False, "off")])
def test_pieces_are_features_where_words_are_joined(compounds, expected):
    corpus = texts(300, compounds=compounds)
    space = LabelSpace.build(corpus)
    model = SparseModel.fit(corpus, space, SparseConfig())
    assert model.config.pieces == expected
    assert ("pieces" in [part.name for part in model.vectoriser.parts]) == (expected == "on")


def test_what_is_set_is_not_tried():
    corpus = texts(300, compounds=True)
    space = LabelSpace.build(corpus)
    gold = space.encode(corpus)
    for config in (SparseConfig(pieces="on"), SparseConfig(pieces="off")):
        assert with_decided_pieces(config, corpus, gold, seed=0) is config
    auto = SparseConfig()
    few = corpus.take(np.arange(50))
    assert with_decided_pieces(auto, few, gold[:50], seed=0) is auto
    assert with_decided_pieces(auto, corpus, gold, seed=0) == replace(auto, pieces="on")


def test_short_and_long_texts_are_not_tried(monkeypatch):
    corpus = texts(120, compounds=True)
    gold, auto = LabelSpace.build(corpus).encode(corpus), SparseConfig()
    monkeypatch.setattr(pieces_trial, "LONG_TEXTS", 55)
    assert with_decided_pieces(auto, corpus, gold, seed=0) is auto
    monkeypatch.setattr(pieces_trial, "LONG_TEXTS", 300)
    monkeypatch.setattr(pieces_trial, "_LONG_WORDS", 0.1)
    assert with_decided_pieces(auto, corpus, gold, seed=0) is auto
    monkeypatch.setattr(pieces_trial, "_LONG_WORDS", 0.015)
    monkeypatch.setattr(pieces_trial, "SHORT_TEXTS", 80)
    assert with_decided_pieces(auto, corpus, gold, seed=0) is auto
