import sys

import numpy as np
import pytest

from glocal.cli import demo
from glocal.data.builtin import BuiltinData
from glocal.data.corpus import Corpus
from glocal.lab.baselines.quick_svm import linear_baseline
from glocal.predict.metric_scores import metric_value
from glocal.vocabulary.label_space import LabelSpace
from tests.cli.conftest import TINY
from tests.tiny import tiny_corpus


@pytest.fixture
def small_data(monkeypatch):
    rows = [{"id": "cat", "name": "Felis catus", "parents": []}]
    data = BuiltinData(tiny_corpus(96, 0), tiny_corpus(16, 1), tiny_corpus(16, 2), rows)
    monkeypatch.setattr("glocal.data.icd10cm.load_icd10cm", lambda **_: data)
    return data


def test_trains_evaluates_tags_and_saves(run, small_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--recipe", "glocalxml", "--texts", "64", *TINY)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "demo-model" / "glocal.toml").exists()
    assert "64 of 96 training texts" in result.stderr
    for words in ("P@1", "nDCG@5", "PSP@5", "TF-IDF", "global", "local", "few", *demo.EXAMPLES):
        assert words in result.stdout
    assert "glocal explain demo-model" in result.stderr
    again = run("demo", "--recipe", "glocalxml", "--texts", "64", "--no-baseline", *TINY)
    assert again.exit_code == 0, again.output
    assert "TF-IDF" not in again.stdout


def test_the_commands_to_go_on_with_can_be_run_from_here(tmp_path, monkeypatch):
    script = tmp_path / "bin" / "glocal"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    assert demo._command() == str(script)
    monkeypatch.setenv("PATH", str(script.parent))
    assert demo._command() == "glocal"
    monkeypatch.setattr(sys, "argv", ["/lib/glocal/__main__.py", "demo"])
    assert demo._command() == "glocal"


def test_a_missing_baseline_is_said_before_training(run, small_data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    result = run("demo", "--recipe", "glocalxml", "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 1
    assert "--no-baseline does without" in result.stderr
    assert "pip install 'glocal[demo]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_place_of_ones_own_is_not_overwritten(run, small_data, model):
    result = run("demo", "--recipe", "glocalxml", "--out", model, *TINY)
    assert result.exit_code == 1
    assert "--overwrite" in result.stderr


def test_baseline_learns_what_words_tell():
    train, test = tiny_corpus(200, 0), tiny_corpus(50, 1)
    labels = LabelSpace.build(train)
    steps = []
    found = linear_baseline(
        train, test, labels, k=2, progress=lambda done, total: steps.append((done, total))
    )
    assert metric_value("P@2", found, labels.encode(test)) > 0.95
    assert steps[-1] == (len(labels), len(labels))


def test_baseline_takes_a_label_of_every_text():
    train = Corpus.from_texts(["a red cat", "a blue dog"], [["all", "cat"], ["all", "dog"]])
    labels = LabelSpace.build(train)
    found = linear_baseline(train, train, labels, k=2)
    assert np.all(found.indices[:, 0] == labels.index["all"])
    assert metric_value("P@2", found, labels.encode(train)) == 1.0
