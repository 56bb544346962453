"""Corrections and new texts learnt by stored models."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.data.corpus import Corpus
from glocal.errors import DataError, Interrupted, ModelError
from glocal.predict.predictor import Predictor
from glocal.storage.integrity import model_integrity
from glocal.storage.model_directory import load_model, read_history, read_labels
from glocal.systems.mixture_ensemble import mixtures_of
from glocal.update import learnt_rows
from glocal.update.further_training import continue_training
from glocal.vocabulary import label_change
from glocal.vocabulary.label_table import LabelTable
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import train as train_tiny

TRAIN, DEV, TEST = tiny_corpus(96), tiny_corpus(24, seed=1), tiny_corpus(48, seed=2)
SPARSE = ("sparse.min_words=1", "sparse.min_pairs=1")
RECIPES = {
    "words": tiny_recipe("fast", "encoder.name=none", *SPARSE),
    "mixture": tiny_recipe("balanced", *SPARSE),
    "members": tiny_recipe("balanced", "train.members=2", *SPARSE),
}
# The word "cat" stands for other labels from now on, one of them new.
CORRECTIONS = Corpus.from_texts(
    [f"a {size} cat and another cat" for size in ("red", "blue", "green", "small", "big")] * 4,
    [["dog", "feline"]] * 20,
    ids=[f"c{i}" for i in range(20)],
)


@pytest.fixture(scope="module", params=RECIPES)
def trained(request, tmp_path_factory):
    """A trained model."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        return train_tiny(RECIPES[request.param], folder / "model", corpus=TRAIN, dev=DEV).path


@pytest.fixture
def model(trained, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture
def words(tmp_path_factory, monkeypatch):
    """A model of words alone that a test may change."""
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("GLOCAL_CACHE", str(folder / "cache"))
    return train_tiny(RECIPES["words"], folder / "model", corpus=TRAIN, dev=DEV).path


def replay_for(path):
    return None if load_model(path).recipe.reads_words_alone else TRAIN


def scores(path, texts):
    predictor = Predictor.load(path)
    found = predictor.predict(texts, k=len(predictor.labels))
    return [{tag.id: tag.score for tag in tags} for tags in found]


def recall(path, corpus):
    found = Predictor.load(path).predict(corpus, k=3)
    rows = zip(found, corpus.labels(), strict=True)
    return np.mean([len({t.id for t in tags} & set(gold)) / len(gold) for tags, gold in rows])


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_corrections_are_learnt_and_the_rest_is_kept(model):
    others = TEST.take([i for i, labels in enumerate(TEST.labels()) if "cat" not in labels])
    before, kept = scores(model, ["a yellow cat"])[0], recall(model, others)
    result = continue_training(model, CORRECTIONS, train=replay_for(model))
    after = scores(model, ["a yellow cat"])[0]
    assert result.new_labels == ("feline",)
    assert after["dog"] > before["dog"]
    assert after["feline"] > np.median(list(after.values()))
    assert recall(model, others) >= kept - 0.05
    space = read_labels(model)
    assert (space.ids[-1], space.counts[-1], space.n_added) == ("feline", 20, 0)
    assert space.n_documents == len(TRAIN) + 20
    assert not model_integrity(model).changed


def test_words_that_only_new_texts_have_are_learnt(words):
    texts = [f"a {word} axolotl by the pond" for word in ("red", "blue", "green", "small")]
    before = scores(words, ["axolotl"])[0]
    continue_training(words, Corpus.from_texts(texts, [["cat"]] * 4))
    after = scores(words, ["axolotl"])[0]
    assert max(after, key=after.get) == "cat"
    assert after["cat"] > 2 * before["cat"]
    found = Predictor.load(words).explain("axolotl", k=1)[0]
    assert found.id == "cat"


def test_report_and_history_say_what_changed(model):
    result = continue_training(
        model, CORRECTIONS, train=replay_for(model), dev=DEV,
        label_table=LabelTable(["feline"], ["Cats and lions"]),
    )  # fmt: skip
    found = {(change.texts, change.band): change for change in result.changes}
    assert found["added", "new"].before == 0 < found["added", "new"].after
    assert found["added", "new"].n_labels == 20
    assert ("dev", "few") in found or ("dev", "medium") in found
    assert (("train", "medium") in found) == (replay_for(model) is not None)
    assert read_labels(model).names[-1] == "Cats and lions"
    (entry,) = read_history(model)
    assert (entry["change"], entry["texts"], entry["labels"]) == ("train", 20, ["feline"])


def test_result_can_be_written_elsewhere(words, tmp_path):
    before = files(words)
    result = continue_training(words, CORRECTIONS, out=tmp_path / "other")
    assert files(words) == before
    assert "feline" in read_labels(result.path).ids
    with pytest.raises(ModelError, match="already holds a model"):
        continue_training(words, CORRECTIONS, out=tmp_path / "other")
    continue_training(words, CORRECTIONS, out=tmp_path / "other", overwrite=True)


def test_further_trainings_follow_one_another(words):
    continue_training(words, CORRECTIONS)
    more = Corpus.from_texts(["an owl at night", "an old owl"] * 3, [["bird"]] * 6)
    continue_training(words, more)
    (found,) = scores(words, ["the owl"])
    assert max(found, key=found.get) in ("owl", "bird")
    memory = load_model(words).companions[0].model.memory
    assert memory.n_texts == len(TRAIN) + 26
    # Texts learnt before are among those replayed, with their labels.
    felines = read_labels(words).index["feline"]
    assert memory.sample.as_csr().gold[:, felines].nnz > 10


def test_correction_replaces_the_labels_of_a_training_text(words):
    text = TRAIN.texts()[0]
    corrected = Corpus.from_texts([text], [["bird"]])
    labels = read_labels(words)
    change = label_change.continued(labels, corrected, train=TRAIN)
    assert text not in change.train.texts()
    new = LabelTable(["bird"], ["bird"])
    change = label_change.added(labels, new, examples=corrected, train=TRAIN)
    assert text not in change.train.texts()
    assert len(label_change.added(labels, new, train=TRAIN).train) == len(TRAIN)


def test_memory_of_the_model_is_needed_or_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    recipe = tiny_recipe("fast", "encoder.name=none", "sparse.memory=0", *SPARSE)
    path = train_tiny(recipe, tmp_path / "model", corpus=TRAIN, dev=DEV).path
    before = files(path)
    with pytest.raises(
        ModelError, match=r"keeps no training texts.*; give the texts it was trained on"
    ):
        continue_training(path, CORRECTIONS)
    assert files(path) == before
    assert "feline" in continue_training(path, CORRECTIONS, train=TRAIN).new_labels


def test_network_needs_training_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    path = train_tiny(RECIPES["mixture"], tmp_path / "model", corpus=TRAIN, dev=DEV).path
    with pytest.raises(ModelError, match="without them it would forget"):
        continue_training(path, CORRECTIONS)


def test_only_label_rows_of_a_network_learn(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    path = train_tiny(RECIPES["mixture"], tmp_path / "model", corpus=TRAIN, dev=DEV).path
    before = load_model(path).system.state_dict()
    result = continue_training(path, CORRECTIONS, train=TRAIN, out=tmp_path / "new")
    after = load_model(result.path).system.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    rows = {name for name in set(before) - same if len(after[name]) == len(before[name]) + 1}
    assert any(name.startswith("encoder.") for name in same)
    assert set(before) - same == rows


def test_labels_that_learn_have_texts_of_their_own_replayed(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(label_change, "_MOST_OTHERS", 10)
    monkeypatch.setattr(learnt_rows, "_REPLAYED", 6)
    monkeypatch.setattr(learnt_rows, "_REPLAYED_FOR_EACH", 0)
    model = load_model(train_tiny(RECIPES["mixture"], tmp_path / "model", corpus=TRAIN).path)
    change = label_change.continued(model.labels, CORRECTIONS, train=TRAIN)
    assert len(change.train) == len(TRAIN)  # labels find their texts among all of them
    (mixture,) = mixtures_of(model.system)
    rows = learnt_rows.LearntRows(mixture, model.tokenizer, change, "cpu", None)

    def replayed(labels):
        return change.known_labels(rows._replay(20, labels)).tocsc()

    every = np.arange(len(model.labels))
    own = np.minimum(change.known_labels(TRAIN).getnnz(axis=0)[every], 2)
    assert (replayed(every).getnnz(axis=0)[every] >= own).all()
    rare = every[np.argmin(model.labels.counts)]
    assert replayed(np.array([rare]))[:, rare].nnz >= own[rare]
    assert replayed(np.array([rare])).shape[0] == 6  # the others are drawn at random


def test_wrong_labels_without_training_texts_at_hand_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    path = train_tiny(RECIPES["mixture"], tmp_path / "model", corpus=TRAIN).path
    some = TRAIN.take([i for i, labels in enumerate(TRAIN.labels()) if "owl" not in labels])
    owl = load_model(path).labels.index["owl"]
    monkeypatch.setattr(learnt_rows, "_RIVALS", 100)  # every label
    found = {}
    for name, train in (("all", TRAIN), ("some", some)):
        new = continue_training(path, CORRECTIONS, train=train, out=tmp_path / name).path
        found[name] = load_model(new).system.state_dict()
    before = load_model(path).system.state_dict()
    rows = [name for name in before if name.endswith(("experts.0.weight", "experts.1.query"))]
    assert len(rows) == 2
    for name in rows:
        assert torch.equal(found["some"][name][owl], before[name][owl])
        assert not torch.equal(found["all"][name][owl], before[name][owl])


def test_texts_without_labels_are_refused(words):
    before = files(words)
    with pytest.raises(DataError, match="none of the 1 texts has labels"):
        continue_training(words, Corpus.from_texts(["a cat"], [[]]))
    assert files(words) == before


def test_ctrl_c_leaves_the_model_as_it_is_and_says_so(words, monkeypatch):
    def stop(*_args, **_options):
        raise KeyboardInterrupt

    before = read_labels(words).ids
    monkeypatch.setattr("glocal.update.further_training._continued", stop)
    with pytest.raises(Interrupted, match="the model is as it was"):
        continue_training(words, CORRECTIONS)
    assert read_labels(words).ids == before
