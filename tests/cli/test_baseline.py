import json

import pytest

from glocal.lab.baselines import baseline_registry as registry
from glocal.ranking.predictions import Predictions
from tests.cli.conftest import invoke, write_jsonl

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def svm(tmp_path_factory, files):
    """What the linear SVM left behind, and what was printed."""
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
    monkeypatch.delenv("GLOCAL_PECOS", raising=False)
    monkeypatch.delenv("GLOCAL_LIBMULTILABEL", raising=False)
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert "pip install 'glocal[baselines]'" in run("baseline").stderr
    rows = json.loads(run("baseline", "--json").stdout)
    installs = {row["name"]: row["install"] for row in rows}
    of_pecos = {installs.pop(name) for name in list(installs) if name.startswith("pecos")}
    assert len(of_pecos) == 1
    assert registry.PIP not in of_pecos
    assert "GLOCAL_LIBMULTILABEL" in installs.pop("libmultilabel-tree")
    assert set(installs.values()) == {registry.PIP}
    needed = {"plt": "napkinxc and scikit-learn", "svm": "scikit-learn", "fasttext": "fasttext-"}
    for name, packages in needed.items():
        result = run("baseline", name, "train.jsonl", "test.jsonl")
        assert result.exit_code == 1
        assert f" needs {packages}" in result.stderr
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
        "dev.parquet", "documents.parquet", "job.json", "labels.parquet", "log.txt",
        "result.json", "spent.json", "test.parquet",
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


def test_what_cannot_be_measured_or_kept_is_said_beforehand(run, files, tmp_path):
    texts = write_jsonl(tmp_path / "bare.jsonl", [{"text": "a cat"}])
    result = run("baseline", "svm", files.train, texts)
    assert result.exit_code == 1
    assert f"{texts}: none of its 1 texts has labels" in result.stderr
    result = run("baseline", "svm", files.train, files.test, "--out", files.test)
    assert result.exit_code == 1
    assert f"{files.test} is a file" in result.stderr


def test_another_run_to_compare_with_is_looked_at_beforehand(run, files, svm, tmp_path):
    out, _ = svm
    result = run("baseline", "svm", files.train, files.test, "--against", tmp_path)
    assert "no scores of each text" in result.stderr
    other = run("baseline", "svm", files.train, files.dev, "--against", out)
    assert "measured on different test texts" in other.stderr
    for refused in (result, other):
        assert refused.exit_code == 1
        assert "linear SVM" not in refused.stderr  # nothing was begun


def test_fewer_labels_than_the_metrics_look_at(run, files, tmp_path):
    train = write_jsonl(
        tmp_path / "train.jsonl", [{"text": f"{x} dog", "labels": [x]} for x in ("red", "blue")]
    )
    result = run("baseline", "svm", train, files.test, "--threads", 1, "--json")
    assert result.exit_code == 0, result.output
    assert 0 < json.loads(result.stdout)["report"]["scores"]["combined"]["P@1"] < 1


def test_a_failure_says_where_its_log_is(run, files, tmp_path):
    texts = write_jsonl(tmp_path / "odd.jsonl", [{"text": "?", "labels": ["a"]}] * 4)
    result = run("baseline", "svm", texts, files.test, "--threads", 1)
    assert result.exit_code == 1
    assert f"svm failed: {texts}: no features can be made of the texts" in result.stderr
    assert "With --out its log is kept." in result.stderr


def test_both_files_are_needed(run, files):
    result = run("baseline", "svm", files.train)
    assert result.exit_code == 1
    assert "needs two files" in result.stderr
