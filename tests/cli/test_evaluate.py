import json

import pytest

from glocal.storage.model_directory import FORMAT_VERSION
from tests.cli.conftest import write_jsonl


def test_tables(run, model, files):
    result = run("eval", model, files.test)
    assert result.exit_code == 0, result.output
    for words in ("P@1", "nDCG@5", "PSP@3", "combined", "D-last", "A-1", "medium"):
        assert words in result.stdout


def test_json(run, model, files):
    result = run("eval", model, files.test, "--json", "-k", "1,2")
    report = json.loads(result.stdout)
    assert report["settings"]["ks"] == [1, 2]
    assert 0 <= report["scores"]["combined"]["P@2"] <= 1


@pytest.mark.parametrize("threshold", [None, 0.9])
def test_micro_f1_is_that_of_the_tags_of_predict(run, model, files, threshold):
    options = [] if threshold is None else ["--threshold", threshold]
    report = json.loads(run("eval", model, files.test, *options, "--json").stdout)
    lines = run("predict", model, files.test, *options).stdout.splitlines()
    tags = [{tag["id"] for tag in json.loads(line)["labels"]} for line in lines]
    rows = files.test.read_text("utf-8").splitlines()
    gold = [set(json.loads(row)["labels"]) for row in rows]
    hits = sum(len(given & right) for given, right in zip(tags, gold, strict=True))
    expected = 2 * hits / sum(map(len, [*tags, *gold]))
    assert report["scores"]["combined"]["micro-F1"] == pytest.approx(expected)
    shown = " ".join(run("eval", model, files.test, *options).stdout.split())
    if threshold is None:
        assert report["settings"]["at_least"] == 1
        assert f"score at least {report['settings']['threshold']:g}, and the best 1 of" in shown
    else:
        assert report["settings"]["threshold"] == 0.9
        assert "Labels that score at least 0.9, and calibration" in shown


def test_trained_model_beats_chance(run, model, files):
    report = json.loads(run("eval", model, files.test, "--json").stdout)
    assert report["scores"]["combined"]["P@1"] > 0.3


def test_train_file_gives_deduplicated_scores(run, model, files):
    result = run("eval", model, files.test, "--json", "--train", files.test)
    report = json.loads(result.stdout)
    assert report["documents"]["near_duplicates"] == report["documents"]["given"] == 24


def test_bands(run, model, files):
    result = run("eval", model, files.test, "--bands", "rare=1-8,common=9-", "--json")
    report = json.loads(result.stdout)
    assert {"rare", "common"} <= set(report["macro"]["combined"]["5"])


def test_two_models_are_compared(run, models, files):
    result = run("eval", *models, files.test, "--json")
    report = json.loads(result.stdout)
    first, second = (report["models"][str(path)]["scores"]["combined"]["P@1"] for path in models)
    found = report["comparison"]["P@1"]
    assert found["difference"] == pytest.approx(second - first)
    assert found["low"] <= found["difference"] <= found["high"]
    shown = run("eval", *models, files.test).stdout
    assert shown.replace("\n", "").startswith(f"{models[1]} minus {models[0]}")
    assert shown.index("paired bootstrap") < shown.index("Macro averages")


def test_a_model_does_not_differ_from_itself(run, model, files):
    report = json.loads(run("eval", model, model, files.test, "--json").stdout)
    assert all(found["difference"] == 0 for found in report["comparison"].values())
    assert f"{model} minus {model}" in run("eval", model, model, files.test).stdout.replace(
        "\n", ""
    )


def test_comparison_across_label_spaces(run, model, files, tmp_path):
    from tests.cli.conftest import TINY

    rows = [json.loads(line) for line in files.train.read_text().splitlines()]
    for row in rows:
        row["labels"] = [*row["labels"][:1], "thing"]
    other = tmp_path / "other"
    path = write_jsonl(tmp_path / "other.jsonl", rows)
    assert run("train", path, "--out", other, *TINY).exit_code == 0
    report = json.loads(run("eval", model, other, files.test, "--json").stdout)
    first = report["models"][str(model)]["scores"]["combined"]["P@5"]
    second = report["models"][str(other)]["scores"]["combined"]["P@5"]
    assert report["comparison"]["P@5"]["difference"] == pytest.approx(second - first)


@pytest.mark.parametrize("ks", ["0", "x", "1,,3", ""])
def test_wrong_cut_offs(run, model, files, ks):
    result = run("eval", model, files.test, "-k", ks)
    assert result.exit_code == 1
    assert "such as 1,3,5" in result.stderr


def test_wrong_number_of_paths(run, model, files):
    result = run("eval", model)
    assert result.exit_code == 1
    assert "MODEL [MODEL2] FILE" in result.stderr
    assert run("eval", model, model, model, files.test).exit_code == 1


def test_bands_ranked_by_themselves(run, model, files):
    result = run("eval", model, files.test, "--within-bands", "--bands", "few=1-8,many=9-")
    assert result.exit_code == 0, result.output
    table = result.stdout[result.stdout.index("ranked among themselves") :]
    assert "with gold" in table
    assert "nDCG@5" in table
    assert "Calibration by band" in table
    result = run("eval", model, files.test, "--within-bands", "--json")
    assert {row["band"] for row in json.loads(result.stdout)["band_calibration"]} == {"few"}
    found = json.loads(result.stdout)["within_bands"]
    assert {(r["band"], r["part"]) for r in found} == {
        ("few", part) for part in ("combined", "D-last", "A-1")
    }
    assert all(0 < r["scores"]["nDCG@5"]["low"] <= 1 for r in found)


def test_bands_of_two_models_are_asked_for_one_by_one(run, models, files):
    result = run("eval", *models, files.test, "--within-bands")
    assert result.exit_code == 1
    assert "one by one" in result.stderr


def test_more_gold_is_looked_at_before_a_model(run, model, files, tmp_path, monkeypatch):
    monkeypatch.setattr("glocal.predict.predictor.Predictor.load", None)
    result = run("eval", model, files.test, "--more-gold", files.test)
    assert result.exit_code == 1
    assert "--more-gold needs --within-bands" in result.stderr
    missing = tmp_path / "missing.jsonl"
    result = run("eval", model, files.test, "--within-bands", "--more-gold", missing)
    assert result.exit_code == 1
    assert "missing.jsonl: no such file" in result.stderr


def test_texts_without_labels(run, model, tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": "the red cat"}])
    result = run("eval", model, path)
    assert result.exit_code == 1
    assert "gold labels" in result.stderr


def test_not_a_model(run, files, tmp_path):
    result = run("eval", tmp_path, files.test)
    assert result.exit_code == 1
    assert "not a model directory" in result.stderr


def test_model_of_a_newer_format(run, model, files, tmp_path):
    import shutil

    newer = shutil.copytree(model, tmp_path / "newer")
    settings = (newer / "glocal.toml").read_text()
    (newer / "glocal.toml").write_text(
        settings.replace(f"format_version = {FORMAT_VERSION}", "format_version = 99")
    )
    result = run("eval", newer, files.test)
    assert result.exit_code == 1
    assert "format 99" in result.stderr
    assert "pip install -U glocal" in result.stderr


def test_shared_task_scores_by_group(run, model, files, tmp_path):
    rows = [json.loads(line) for line in files.test.read_text().splitlines()]
    for place, row in enumerate(rows):
        row["kind"] = ["book", "article"][place % 2]
    path = write_jsonl(tmp_path / "kinds.jsonl", rows)
    options = ["--shared-task", "--group-field", "kind"]
    report = json.loads(run("eval", model, path, *options, "--json").stdout)
    assert [row["group"] for row in report["shared_task"]] == ["all", "article", "book"]
    assert report["shared_task"][0]["recall"]["5"] == pytest.approx(
        report["scores"]["combined"]["R@5"]
    )
    assert "mean R@5–50" in run("eval", model, path, "--shared-task").stdout


def test_a_group_field_needs_the_shared_task(run, model, models, files):
    result = run("eval", model, files.test, "--group-field", "kind")
    assert "--group-field needs --shared-task" in result.stderr
    result = run("eval", *models, files.test, "--shared-task")
    assert "--shared-task takes one model" in result.stderr
