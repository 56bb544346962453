"""The linear model of words fitted in another process while the network trains."""

import subprocess
import sys

import pytest

from glocal.predict.predictor import Predictor
from glocal.train import later_companions
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train, weights

DEV = tiny_corpus(16, seed=1)
RECIPE = tiny_recipe("balanced", "train.evaluations=2")
TEXTS = ["the red fox", "a blue owl"]


@pytest.fixture
def overlapping(monkeypatch):
    monkeypatch.setattr("glocal.train.run._leaves_cores_idle", lambda checked, engine: True)


@pytest.fixture(scope="module")
def fitted_first(tmp_path_factory):
    """The model of a run that fits the words before the network."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        train(RECIPE, folder / "m", dev=DEV)
    return folder / "m"


def assert_same_model(path, other):
    found, expected = weights(path), weights(other)
    assert all(found[name].equal(tensor) for name, tensor in expected.items())
    mine, theirs = (Predictor.load(p, device="cpu").predict(TEXTS, k=5) for p in (path, other))
    assert (mine.indices == theirs.indices).all()
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-6)


def test_the_model_is_the_same(tmp_path, monkeypatch, overlapping, fitted_first):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    listener = Recorder()
    train(RECIPE, tmp_path / "m", dev=DEV, listener=listener)
    assert any("in another process" in message for message in listener.messages)
    assert_same_model(tmp_path / "m", fitted_first)
    assert not any((tmp_path / "cache" / "jobs").iterdir())


def test_scores_during_the_run_are_those_of_the_trained_experts(
    tmp_path, overlapping, fitted_first
):
    listener = Recorder()
    result = train(RECIPE, tmp_path / "m", dev=DEV, listener=listener)
    assert [set(e["experts"]) for e in listener.evaluations] == [{"D-last", "A-last"}] * 2
    assert set(result.metrics["dev_experts"]) == {"D-last", "A-last", "S"}


def test_a_process_that_fails_costs_time_only(
    tmp_path, monkeypatch, caplog, overlapping, fitted_first
):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))

    def failing(kinds, inputs, folder):
        (folder / "errors.txt").write_text("Traceback\nMemoryError: too large\n")
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])

    monkeypatch.setattr(later_companions, "start_fit", failing)
    train(RECIPE, tmp_path / "m", dev=DEV)
    assert "MemoryError: too large" in caplog.text
    assert_same_model(tmp_path / "m", fitted_first)


def test_a_run_that_fails_ends_the_other_process(tmp_path, monkeypatch, overlapping):
    started = []

    def sleeping(kinds, inputs, folder):
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[0]

    def broken(*args):
        raise RuntimeError("the network failed")

    monkeypatch.setattr(later_companions, "start_fit", sleeping)
    monkeypatch.setattr("glocal.train.run._train_alone", broken)
    with pytest.raises(RuntimeError, match="the network failed"):
        train(RECIPE, tmp_path / "m", dev=DEV)
    assert started[0].poll() is not None
