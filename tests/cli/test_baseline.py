import json

import pytest

from glocal.baselines import registry
from glocal.predict.predictions import Predictions

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def svm(tmp_path_factory, files):
    """What the linear SVM left behind, and what was printed."""
    from tests.cli.conftest import invoke

    out = tmp_path_factory.mktemp("svm")
    arguments = ["baseline", "svm", files.train, files.test, "--dev", files.dev]
    result = invoke(*arguments, "--out", out, "--threads", 1, "--json")
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def test_lists_the_baselines(run):
    result = run("baseline")
    assert result.exit_code == 0
    for name in registry.BASELINES:
        assert name in result.stdout


def test_a_library_that_is_missing_is_listed_with_its_pip_line(run, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert "pip install 'glocal[baselines]'" in run("baseline").stderr
    rows = json.loads(run("baseline", "--json").stdout)
    assert {row["install"] for row in rows} == {registry.PIP}
    result = run("baseline", "plt", "train.jsonl", "test.jsonl")
    assert result.exit_code == 1
    assert "pip install 'glocal[baselines]'" in result.stderr


def test_measures_quality_and_cost(svm):
    _, row = svm
    assert row["status"] == "done"
    assert row["report"]["scores"]["combined"]["P@1"] > 0.9
    assert row["dev"]["P@1"] > 0.9
    cost = row["cost"]
    assert cost["train_seconds"] > cost["feature_seconds"] > 0
    assert cost["peak_bytes"] > 1e7
    assert cost["model_bytes"] > 500
    assert cost["latency_ms"] > 0
    assert cost["docs_per_second"] > 0


def test_keeps_predictions_but_no_texts(svm):
    out, _ = svm
    assert len(Predictions.load(out / "test.parquet")) == 24
    assert len(Predictions.load(out / "dev.parquet")) == 16
    kept = {path.name for path in out.iterdir()}
    assert kept == {
        "dev.parquet", "documents.parquet", "job.json", "labels.parquet", "log.txt", "row.json",
        "spent.json", "test.parquet",
    }  # fmt: skip


def test_compares_with_another_run(run, files, svm):
    out, _ = svm
    result = run("baseline", "svm", files.train, files.test, "--matched", "--against", out)
    assert result.exit_code == 0, result.output
    assert "linear SVM, matched minus" in result.stdout
    assert "train s" in result.stdout


def test_an_unknown_name_gets_the_nearest(run):
    result = run("baseline", "parabell", "a", "b")
    assert result.exit_code == 1
    assert "did you mean 'parabel'" in result.stderr


def test_both_files_are_needed(run, files):
    result = run("baseline", "svm", files.train)
    assert result.exit_code == 1
    assert "needs two files" in result.stderr
