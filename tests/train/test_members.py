"""A model of several members: what is shared, what is kept, and going on after a kill."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file

from glocal import Tagger
from glocal.companions.companion_list import Companions
from glocal.config import load_recipe
from glocal.errors import ConfigError, Interrupted, TrainingError
from glocal.predict.ensemble import ensemble_predict
from glocal.predict.predictor import Predictor
from glocal.predict.word_evidence import TracedReading
from glocal.systems.mixture_ensemble import mixtures_of
from glocal.train.listener import TrainListener
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train, train_in_processes

DEV = tiny_corpus(24, seed=1)
SETTINGS = ("train.members=2", "train.seed=3", "encoder.dropout=0.1")
STEPS = 8  # of each member: 64 texts in batches of 16, twice


def recipe(*overrides):
    return tiny_recipe("best", *SETTINGS, *overrides)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of two members."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return train(recipe(), tmp_path_factory.mktemp("whole") / "m", dev=DEV).path


class Killed(BaseException):
    """As if the process had gone."""


class Dies(TrainListener):
    """Ends the run at a message that begins with some words."""

    def __init__(self, words):
        self.words = words

    def on_message(self, text):
        if text.startswith(self.words):
            raise Killed


def member_weights(path, number):
    return load_file(path / "members" / str(number) / "model.safetensors")


def assert_same_weights(left, right):
    assert left.keys() == right.keys()
    assert not [name for name in left if not left[name].equal(right[name])]


def assert_same_model(first, second):
    for number in range(2):
        assert_same_weights(member_weights(first, number), member_weights(second, number))
    kept = [json.loads((path / "metrics.json").read_text("utf-8")) for path in (first, second)]
    assert kept[0]["dev"] == kept[1]["dev"]
    settings = [(path / "glocal.toml").read_text("utf-8").splitlines() for path in (first, second)]
    left, right = ([line for line in s if not line.startswith("created")] for s in settings)
    assert left == right  # among them the experts' weights and the calibration


def test_each_member_is_the_run_of_its_seed(whole, tmp_path):
    alone = tiny_recipe("best", *SETTINGS, "train.members=1", "train.seed=4")
    path = train(alone, tmp_path / "alone", dev=DEV).path
    assert_same_weights(member_weights(whole, 1), load_file(path / "model.safetensors"))


def test_the_directory_holds_what_is_shared_once(whole):
    folders = sorted(path.name for path in whole.iterdir() if path.is_dir())
    assert folders == ["encoder", "members", "sparse"]
    assert not whole.with_name("m.run").exists()
    metrics = json.loads((whole / "metrics.json").read_text("utf-8"))
    assert [member["steps"] for member in metrics["members"]] == [STEPS, STEPS]
    assert metrics["steps"] == 2 * STEPS
    log = [json.loads(line) for line in (whole / "train_log.jsonl").read_text().splitlines()]
    assert {entry["member"] for entry in log} == {0, 1}
    assert "2 members, seeds 3 to 4, 2 epochs each" in (whole / "README.md").read_text("utf-8")


def test_a_run_killed_between_members_goes_on_with_the_second(whole, tmp_path):
    out = tmp_path / "m"
    with pytest.raises(Killed):
        train(recipe(), out, dev=DEV, listener=Dies("member 2 of 2"))
    assert not out.exists()
    listener = Recorder()
    train(recipe(), out, dev=DEV, resume=True, listener=listener)
    assert listener.steps == list(range(1, STEPS + 1))  # the second member's alone
    assert "member 1 of 2 is finished already" in listener.messages
    assert_same_model(whole, out)


def test_a_member_stopped_midway_goes_on_where_it_was(whole, tmp_path):
    out = tmp_path / "m"
    with pytest.raises(Interrupted, match="resume=True"):
        train(recipe(), out, dev=DEV, listener=Recorder(stop_at=5))
    listener = Recorder()
    train(recipe(), out, dev=DEV, resume=True, listener=listener)
    assert listener.steps == [*range(6, STEPS + 1), *range(1, STEPS + 1)]
    assert_same_model(whole, out)


def test_the_companions_are_fitted_once(tmp_path, monkeypatch):
    fitted = []
    fit = Companions.fit
    instead = lambda *args, **options: fitted.append(1) or fit(*args, **options)  # noqa: E731
    monkeypatch.setattr(Companions, "fit", instead)
    train(recipe("train.epochs=1"), tmp_path / "m")
    assert len(fitted) == 1


def test_an_unfinished_run_is_not_replaced_unasked(tmp_path):
    out = tmp_path / "m"
    with pytest.raises(Killed):
        train(recipe("train.epochs=1"), out, listener=Dies("member 2 of 2"))
    with pytest.raises(Exception, match="holds an unfinished run; pass resume=True"):
        train(recipe("train.epochs=1"), out)
    with pytest.raises(TrainingError, match="had another recipe or other data"):
        train(recipe("train.epochs=1", "train.warmup=0.2"), out, resume=True)
    with pytest.raises(TrainingError, match="another number of members"):
        train(recipe("train.epochs=1", "train.members=1"), out, resume=True)
    (tmp_path / "m.run" / "members" / "0" / "state.json").write_text("{")
    with pytest.raises(TrainingError, match=r"cannot be read: .*; delete that folder"):
        train(recipe("train.epochs=1"), out, resume=True)
    train(recipe("train.epochs=1"), out, overwrite=True)
    assert (out / "members" / "1" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (tiny_recipe("aplc", "train.members=2"), "which aplc-xlnet does not have"),
        (load_recipe("fast", ["train.members=2"]), r"nothing in the experts \['S'\] depends"),
    ],
)
def test_what_cannot_be_a_member_is_refused_before_training(tmp_path, asked, reason):
    listener = Recorder()
    with pytest.raises(ConfigError, match=reason):
        train(asked, tmp_path / "m", listener=listener)
    assert not listener.steps


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_equal_one(tmp_path):
    settings = ("train.members=2", "train.epochs=1")
    train_in_processes(tmp_path / "two", 2, "best", *settings)
    train(tiny_recipe("best", *settings), tmp_path / "one", dev=tiny_corpus(9, seed=1))
    texts = tiny_corpus(8, seed=2).texts()
    one, two = (Predictor.load(tmp_path / name, device="cpu") for name in ("one", "two"))
    left, right = (p.predict(texts, k=15, per_expert=True).experts["D-last"] for p in (one, two))
    np.testing.assert_allclose(left.scores, right.scores, atol=1e-3)


# --- using one -------------------------------------------------------------------------------


def test_predictor_tagger_and_ensembles_read_it(whole):
    texts = tiny_corpus(8, seed=2)
    predictor = Predictor.load(whole, device="cpu")
    found = predictor.predict(texts.texts(), k=3, per_expert=True)
    assert found.experts.keys() == {"D-last", "A-last", "S"}
    by_tagger = Tagger.load(whole, device="cpu").predict_topk(texts.texts(), k=3)
    assert np.array_equal(by_tagger.indices, found.indices)
    assert np.array_equal(by_tagger.scores, found.scores)
    voted = ensemble_predict([whole, whole], texts, k=3, device="cpu")
    assert np.array_equal(voted.indices, found.indices)
    report = predictor.evaluate(tiny_corpus(8, seed=2))
    assert set(report.experts) == {"D-last", "A-last", "S"}


def test_batch_size_does_not_change_predictions(whole):
    texts = tiny_corpus(7, seed=2).texts()
    one, many = (Predictor.load(whole, device="cpu", batch_size=size) for size in (1, 7))
    left, right = (p.predict(texts, k=4) for p in (one, many))
    assert np.array_equal(left.indices, right.indices)
    np.testing.assert_allclose(left.scores, right.scores, rtol=1e-4)


def test_the_evidence_of_words_is_the_mean_of_all_members(whole):
    predictor = Predictor.load(whole, device="cpu")
    ensemble, found = predictor.system, []
    for system in (ensemble, *mixtures_of(ensemble)):
        predictor.system = system
        reading = TracedReading(predictor, "the red cat a a a")
        logits = reading.logits([2])
        assert set(logits) == {"D-last", "A-last", "S"}
        own = {name: logits[name][0, 0] for name in ("D-last", "A-last")}
        read_again = [reading._without_each_word(n, float(z.detach()), 2) for n, z in own.items()]
        found.append(np.array([*read_again, *map(reading._gradients, own.values())]))
    together, first, second = found
    assert together == pytest.approx((first + second) / 2, abs=1e-5)
    assert not np.allclose(first, second)
