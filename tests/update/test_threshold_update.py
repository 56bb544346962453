"""A threshold tuned after training, stored with the model and used everywhere."""

import shutil

import pytest

from glocal.config import load_recipe
from glocal.errors import ConfigError
from glocal.predict.predictor import Predictor
from glocal.ranking.decision import Decision
from glocal.storage.model_directory import load_model, store_decision
from glocal.storage.model_info import model_info
from glocal.tagger import Tagger
from glocal.train.run import fit
from glocal.update.label_update import remove_labels, rename_labels
from glocal.update.threshold_update import tune_threshold
from tests.tiny import tiny_corpus

DEV = tiny_corpus(40, seed=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("threshold") / "model"
    fit(load_recipe("fast"), tiny_corpus(96), out=out, dev=DEV)
    return out


@pytest.fixture
def model(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "model")


def test_the_tuned_decision_is_stored_and_used(model):
    before = load_model(model).decision
    update = tune_threshold(model, DEV, labels_per_text=1)
    assert update.former == before
    assert update.after.tags_per_text == pytest.approx(1, abs=0.1)
    assert update.after.recall < update.before.recall
    stored = load_model(model)  # the checksums match
    assert stored.decision == update.decision
    assert (stored.decision.goal, stored.decision.n_texts) == ("1 label per text", 40)
    assert model_info(model).integrity.changed == ()
    tags = Tagger.load(model).predict(list(DEV.texts()))
    assert sum(map(len, tags)) / len(tags) == pytest.approx(update.after.tags_per_text)


def test_nothing_else_in_the_model_changes(model):
    before = {f.name: f.read_bytes() for f in model.rglob("*") if f.is_file()}
    tune_threshold(model, DEV, precision=0.9, per_label=True)
    after = {f.name: f.read_bytes() for f in model.rglob("*") if f.is_file()}
    assert {n for n in after if after[n] != before.get(n)} == {"glocal.toml", "checksums.json"}
    store_decision(model, load_model(model).decision)
    assert (model / "glocal.toml").read_bytes() == after["glocal.toml"]


def test_a_dry_run_changes_nothing(model):
    before = (model / "glocal.toml").read_bytes()
    assert not tune_threshold(model, DEV, precision=0.9, store=False).stored
    assert (model / "glocal.toml").read_bytes() == before


def test_a_precision_may_leave_a_text_without_tags(model):
    assert tune_threshold(model, DEV, precision=0.9, store=False).decision.at_least == 0
    assert tune_threshold(model, DEV, store=False).decision.at_least == 1
    assert tune_threshold(model, DEV, precision=0.5, at_least=2, store=False).decision.at_least == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": 1.5}, "at most 1, not 1.5"),
        ({"labels_per_text": 0}, "above 0, not 0"),
        ({"precision": 0.5, "labels_per_text": 2}, "not both"),
        ({"at_least": -1}, "at least -1 tags"),
        ({"labels_per_text": 99}, "cannot be reached"),
    ],
)
def test_goals_that_make_no_sense(model, options, message):
    with pytest.raises(ConfigError, match=message):
        tune_threshold(model, DEV, **options)


def test_own_thresholds_follow_changes_of_the_labels(model):
    store_decision(model, Decision(0.5, own={"cat": 0.2, "dog": 0.3}))
    rename_labels(model, {"cat": "tiger"})
    remove_labels(model, ["dog"])
    assert dict(Predictor.load(model).decision.own) == {"tiger": 0.2}
