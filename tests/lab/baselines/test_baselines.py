"""One suite for every baseline: each learns what words tell, in our label space."""

import json

import numpy as np
import pytest

from glocal.data.corpus import Corpus
from glocal.errors import TrainingError
from glocal.lab.baselines.baseline_registry import BASELINES, build_baseline
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import tiny_corpus

# Enough passes for fastText, whose default is made for millions of texts.
SETTINGS = {"fasttext": {"lr": 0.5, "epoch": 60, "dim": 16}}


def fitted(name, train, folder, **options):
    if BASELINES[name].environment and not BASELINES[name].version:
        pytest.skip("needs an environment of its own")
    for module in BASELINES[name].imports:
        pytest.importorskip(module)
    settings = SETTINGS.get(name, BASELINES[name].matched)
    baseline = build_baseline(name, settings, **options)
    labels = LabelSpace.build(train)
    baseline.fit(train, labels.encode(train)[:, : len(labels)], folder)
    return baseline, labels


@pytest.mark.parametrize("name", BASELINES)
class TestEvery:
    def test_learns_what_words_tell(self, name, tmp_path):
        baseline, labels = fitted(name, tiny_corpus(96), tmp_path)
        test = tiny_corpus(32, seed=3)
        found = baseline.predict(test.texts(), 2)
        gold = labels.encode(test)
        hits = gold[np.arange(len(test))[:, None], found.indices].sum()
        assert hits / gold.nnz > 0.9

    def test_more_labels_than_there_are_gives_all_once(self, name, tmp_path):
        baseline, labels = fitted(name, tiny_corpus(48), tmp_path)
        found = baseline.predict(["the red cat"], 100)
        given = found.indices[0][found.indices[0] >= 0]
        assert len(given) == len(set(given.tolist())) <= len(labels)
        assert given.max() < len(labels)

    def test_texts_without_known_words_do_no_harm(self, name, tmp_path):
        corpus = tiny_corpus(40)
        rows = [*zip(corpus.texts(), corpus.labels(), strict=True), ("", ["red"]), ("? !", ["owl"])]
        train = Corpus.from_texts([text for text, _ in rows], [labels for _, labels in rows])
        baseline, labels = fitted(name, train, tmp_path)
        found = baseline.predict(["", "zzz qqq", "the red cat"], 3)
        assert found.indices.shape == (3, 3)
        assert labels.index["cat"] in found.indices[2]

    def test_the_model_lies_in_its_folder(self, name, tmp_path):
        fitted(name, tiny_corpus(40), tmp_path / "model")
        assert sum(p.stat().st_size for p in (tmp_path / "model").rglob("*") if p.is_file()) > 500

    def test_settings_are_plain_values(self, name):
        spec = BASELINES[name]
        assert json.loads(json.dumps(spec.matched)) == spec.matched


# Omikuji takes no seed, and NapkinXC's solver draws from the C library beside its own.
@pytest.mark.parametrize("name", ["svm", "fasttext"])
def test_the_same_seed_gives_the_same(name, tmp_path):
    texts = tiny_corpus(16, seed=3).texts()
    first, second = (
        fitted(name, tiny_corpus(48), tmp_path / str(n), seed=4)[0].predict(texts, 3)
        for n in range(2)
    )
    np.testing.assert_array_equal(first.indices, second.indices)


def test_a_text_cannot_bring_labels_of_its_own(tmp_path):
    pytest.importorskip("fasttext")
    corpus = tiny_corpus(40)
    texts = [f"{text} __label__9999" for text in corpus.texts()]
    baseline, labels = fitted("fasttext", Corpus.from_texts(texts, corpus.labels()), tmp_path)
    found = baseline.predict(["__label__9999 the red cat"], 50)
    assert found.indices.max() < len(labels)


def test_texts_of_several_lines_are_one_text(tmp_path):
    pytest.importorskip("fasttext")
    baseline, _ = fitted("fasttext", tiny_corpus(96), tmp_path)
    whole, broken = baseline.predict(["the red cat", "the\nred\r\ncat"], 2).indices
    np.testing.assert_array_equal(whole, broken)


class Diverging:
    """In place of the library: its loss is NaN at learning rates above `limit`."""

    def __init__(self, limit):
        self.limit, self.rates = limit, []

    def train_supervised(self, path, *, lr, **_):
        self.rates.append(lr)
        if lr > self.limit:
            raise RuntimeError("Encountered NaN.")
        return self

    def save_model(self, path):
        pass


def fasttext_with(library, folder, monkeypatch, **settings):
    """What it said."""
    monkeypatch.setattr("glocal.lab.baselines.fasttext_ova.require", lambda *_, **__: library)
    train, said = tiny_corpus(8), []
    labels = LabelSpace.build(train)
    positives = labels.encode(train)[:, : len(labels)]
    build_baseline("fasttext", settings).fit(train, positives, folder, said.append)
    return said


def test_fasttext_goes_on_with_half_the_learning_rate(tmp_path, monkeypatch):
    library = Diverging(0.2)
    said = fasttext_with(library, tmp_path, monkeypatch, lr=0.5)
    assert library.rates == [0.5, 0.25, 0.125]
    assert said[-1] == "loss NaN at lr=0.25, trying 0.125"


def test_fasttext_that_never_converges_is_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(TrainingError, match=r"every learning rate from 0\.1 to 0\.003"):
        fasttext_with(Diverging(0.0), tmp_path, monkeypatch)
