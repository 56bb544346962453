import json

import numpy as np
import pytest

from tests.cli.conftest import TINY, write_jsonl


def test_tags_are_the_mean_of_all_models(run, models, files, tmp_path):
    output = tmp_path / "tags.jsonl"
    result = run("ensemble", *models, files.test, "--output", output, "-k", "15")
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in output.read_text().splitlines()]
    single = [
        [json.loads(line) for line in run("predict", m, files.test, "-k", "15").stdout.splitlines()]
        for m in models
    ]
    for row, *others in zip(found, *single, strict=True):
        scores = [{label["id"]: label["score"] for label in other["labels"]} for other in others]
        for label in row["labels"]:
            mean = np.mean([score[label["id"]] for score in scores])
            assert label["score"] == pytest.approx(mean, abs=2e-6)


def test_evaluation(run, models, files):
    report = json.loads(run("ensemble", *models, files.test, "--eval", "--json").stdout)
    assert 0 < report["scores"]["combined"]["P@5"] <= 1
    tables = run("ensemble", *models, files.test, "--eval", "--ks", "1,2")
    assert "P@2" in tables.stdout


def test_something_must_be_asked_for(run, models, files):
    result = run("ensemble", *models, files.test)
    assert result.exit_code == 1
    assert "--output" in result.stderr
    assert "--eval" in result.stderr


def test_models_of_different_labels(run, model, files, tmp_path):
    rows = [{"text": "red cat", "labels": ["cat", "mauve"]}, {"text": "dog", "labels": ["dog"]}] * 4
    path = write_jsonl(tmp_path / "other.jsonl", rows)
    assert run("train", path, "--out", tmp_path / "other", *TINY).exit_code == 0
    result = run("ensemble", model, tmp_path / "other", files.test, "--eval")
    assert result.exit_code == 1
    assert "do not share a label space" in result.stderr
    assert "mauve" in result.stderr


def test_one_path_is_not_enough(run, files):
    result = run("ensemble", files.test, "--eval")
    assert result.exit_code == 1
    assert "MODEL… FILE" in result.stderr


def test_k_above_the_number_of_labels(run, models, files):
    result = run("ensemble", *models, files.test, "--output", "-", "-k", "16")
    assert result.exit_code == 1
    assert "15" in result.stderr
