"""Labels added to, removed from, renamed and merged in stored models."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from glocal.data.corpus import Corpus
from glocal.errors import DataError, ModelError
from glocal.predict.predictor import Predictor
from glocal.storage import model_directory
from glocal.storage.model_directory import read_history, read_labels
from glocal.update.label_update import add_labels, merge_labels, remove_labels, rename_labels
from glocal.vocabulary.label_table import LabelTable
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import train as train_tiny

TRAIN, DEV = tiny_corpus(96), tiny_corpus(24, seed=1)
TEST = tiny_corpus(48, seed=2)
SPARSE = ("sparse.min_words=1", "sparse.min_pairs=1")
RECIPES = {
    "words": tiny_recipe("fast", "encoder.name=none", *SPARSE),
    "mixture": tiny_recipe("balanced", *SPARSE),
    "tied": tiny_recipe("balanced", "labels.text=tied", *SPARSE),
    "clusters": tiny_recipe(
        "balanced", "candidates.mode=clusters", "candidates.cluster_size=4", *SPARSE
    ),
}
HELD = "owl"  # a label that training does not see


def train(path, recipe, corpus, dev):
    return train_tiny(recipe, path, corpus=corpus, dev=dev).path


def without(corpus, label):
    rows = [[name for name in labels if name != label] for labels in corpus.labels()]
    return Corpus.from_texts(corpus.texts(), rows)


def examples_of(label, count):
    rows = [r for r, labels in enumerate(TRAIN.labels()) if label in labels][:count]
    return TRAIN.take(rows)


@pytest.fixture(scope="module", params=RECIPES)
def trained(request, tmp_path_factory):
    """A model that has never seen one of the labels."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        recipe = RECIPES[request.param]
        return train(folder / "model", recipe, without(TRAIN, HELD), without(DEV, HELD))


@pytest.fixture
def model(trained, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "model"))


def scores(path, texts):
    """Calibrated scores of all labels, by label id."""
    predictor = Predictor.load(path)
    found = predictor.predict(texts, k=len(predictor.labels))
    return [{tag.id: tag.score for tag in tags} for tags in found]


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("count", [0, 5])
def test_new_label_is_recognised_and_others_keep_their_scores(model, count):
    before = scores(model, TEST.texts())
    table = LabelTable([HELD], [HELD], alt_names=[("owls",)], notations=["1"])
    update = add_labels(model, table, examples=examples_of(HELD, count) if count else None)
    assert update.labels == (HELD,)
    after = scores(model, TEST.texts())
    for old, new in zip(before, after, strict=True):
        assert {id_: score for id_, score in new.items() if id_ != HELD} == pytest.approx(
            old, abs=2e-7
        )
    own = np.array([row[HELD] for row in after])
    has = np.array([HELD in labels for labels in TEST.labels()])
    assert own[has].mean() > own[~has].mean()
    space = read_labels(model)
    assert (space.ids[-1], space.counts[-1], space.n_added) == (HELD, count, 1)
    assert (space.alt_names[-1], space.notations[-1]) == (("owls",), "1")
    (entry,) = read_history(model)
    assert (entry["change"], entry["labels"], entry["examples"]) == ("add", [HELD], count)


def test_new_label_whose_name_no_training_text_has_is_found(model):
    texts = [*list(TEST.texts())[:6], "a pig with a xylophone", "xylophone", "a pig", "…"]
    before = scores(model, texts)
    add_labels(model, LabelTable(["x", "y"], ["xylophone", "zither"]))
    after = scores(model, texts)
    for old, new in zip(before, after, strict=True):
        assert {id_: new[id_] for id_ in old} == pytest.approx(old, abs=2e-7)
    assert after[6]["x"] > after[8]["x"]
    assert after[6]["x"] > after[6]["y"]


def test_training_texts_can_be_given(model):
    table = LabelTable([HELD], [HELD])
    add_labels(model, table, examples=examples_of(HELD, 3), train=without(TRAIN, HELD))
    after = scores(model, [f"an {HELD} and an {HELD}", "a pig"])
    assert after[0][HELD] > after[1][HELD]


def test_changes_follow_one_another(model):
    n_labels = len(read_labels(model))
    before = scores(model, TEST.texts())
    add_labels(model, LabelTable([HELD], [HELD]))
    remove_labels(model, ["cat", HELD])
    rename_labels(model, {"dog": "hound"}, names={"dog": "a hound"})
    after = scores(model, TEST.texts())
    assert len(read_labels(model)) == n_labels - 1
    for old, new in zip(before, after, strict=True):
        assert set(new) == (set(old) - {"cat", "dog"}) | {"hound"}
        assert new["hound"] == pytest.approx(old["dog"], rel=0.2, abs=1e-3)
    assert read_labels(model).n_added == 0
    assert read_labels(model).names[read_labels(model).index["hound"]] == "a hound"
    assert [entry["change"] for entry in read_history(model)] == ["add", "remove", "rename"]


def test_merge(model):
    space = read_labels(model)
    total = int(space.counts[space.index["red"]] + space.counts[space.index["blue"]])
    merge_labels(model, ["red"], into="blue")
    after = read_labels(model)
    assert "red" not in after.index
    assert after.counts[after.index["blue"]] == total
    found = scores(model, ["red red red", "green green green"])
    assert found[0]["blue"] > found[1]["blue"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: add_labels(m, LabelTable(["cat"], ["Cat"])), "'cat' is already in the model"),
        (lambda m: remove_labels(m, ["catt"]), r"no label 'catt'.*did you mean 'cat'"),
        (lambda m: remove_labels(m, read_labels(m).ids), "all 14 labels would be removed"),
        (lambda m: rename_labels(m, {"cat": "dog"}), "'dog' is already in the model"),
        (lambda m: rename_labels(m, {"cat": "cat"}), "'cat' is called so already"),
        (lambda m: rename_labels(m, {}, names={"cat": "cat"}), "'cat' is called so already"),
        (lambda m: merge_labels(m, ["cat"], into="cat"), "cannot be merged into itself"),
        (lambda m: merge_labels(m, ["cat"], into="none"), "no label 'none'"),
        (
            lambda m: add_labels(
                m, LabelTable(["x"], ["x"]), examples=Corpus.from_texts(["an x"], [["x", "y"]])
            ),
            "has the label 'y', which is neither new nor in the model",
        ),
    ],
)
def test_bad_input_changes_nothing(model, change, message):
    before = files(model)
    with pytest.raises(DataError, match=message):
        change(model)
    assert files(model) == before


def test_failure_while_writing_leaves_the_old_model(model, monkeypatch):
    before = files(model)

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_directory, "_write", fail)
    with pytest.raises(ModelError, match="nothing there was changed"):
        remove_labels(model, ["cat"])
    assert files(model) == before
    assert [path.name for path in model.parent.iterdir() if path.name.startswith(".")] == []


def test_other_files_stay(model):
    (model / "tagger.json").write_text(json.dumps({"k": 3}))
    model_directory.update_checksums(model)
    remove_labels(model, ["cat"])
    assert json.loads((model / "tagger.json").read_text()) == {"k": 3}


def test_systems_that_cannot_be_changed_say_so(tmp_path):
    path = train(tmp_path / "model", tiny_recipe("treaderxml"), TRAIN, DEV)
    with pytest.raises(ModelError, match=r"the expert R-.* cannot be changed"):
        remove_labels(path, ["cat"])


def test_words_model_without_a_sample_asks_for_training_texts(tmp_path):
    recipe = tiny_recipe("fast", "encoder.name=none", *SPARSE, "sparse.memory=0")
    path = train(tmp_path / "model", recipe, without(TRAIN, HELD), without(DEV, HELD))
    table, examples = LabelTable([HELD], [HELD]), examples_of(HELD, 3)
    with pytest.raises(ModelError, match="pass train=… to give the training texts"):
        add_labels(path, table, examples=examples)
    add_labels(path, table, examples=examples, train=TRAIN)
