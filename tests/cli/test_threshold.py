"""`glocal threshold`."""

import json
import shutil

import pytest


@pytest.fixture
def own(model, tmp_path):
    return shutil.copytree(model, tmp_path / "model")


def test_report_and_info(run, own, files):
    result = run("threshold", own, files.dev, "--labels-per-text", 2)
    assert result.exit_code == 0, result.stderr
    assert "before" in result.stdout
    assert "for 2 labels per text" in result.stdout
    assert "Recall" in result.stderr
    assert "Stored in" in result.stderr
    assert "tuned for 2 labels per text on 16 texts" in run("info", own).stdout


def test_per_label_as_json(run, own, files):
    result = run("threshold", own, files.dev, "--precision", 0.3, "--per-label", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["after"]["precision"] >= 0.3
    assert document["stored"] is True


def test_dry_run(run, own, files):
    result = run("threshold", own, files.dev, "--dry-run")
    assert "The model was not changed." in result.stderr
    assert "tuned for" not in run("info", own).stdout


def test_wrong_goals(run, own, files):
    result = run("threshold", own, files.dev, "--f1", "--precision", 0.5)
    assert result.exit_code == 1
    assert "--f1 and --precision exclude each other" in result.stderr
    result = run("threshold", own, files.dev, "--labels-per-text", -1)
    assert result.stderr.count("\n") == 1
    assert "above 0, not -1" in result.stderr
