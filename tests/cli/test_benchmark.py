import json

import pytest

from tests.cli.conftest import TINY, invoke

pytest.importorskip("sklearn")


def arguments(files, out):
    return ["benchmark", files.train, files.dev, files.test, "--out", out, "--threads", 1]


@pytest.fixture(scope="module")
def results(tmp_path_factory, files):
    """A results folder with a baseline in both settings."""
    out = tmp_path_factory.mktemp("results")
    result = invoke(*arguments(files, out), "--recipes", "none", "--baselines", "svm")
    assert result.exit_code == 0, result.output
    return out, result


def test_writes_rows_and_the_page(results):
    out, result = results
    assert {path.name for path in out.iterdir()} == {
        "results.html", "results.json", "results.md", "runs",
    }  # fmt: skip
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert sorted(row["name"] for row in rows) == ["svm", "svm-matched"]
    assert "train s" in result.stdout
    assert "[1/2]" in result.stderr
    assert not list(out.glob("runs/*/cache"))


def test_repeating_it_measures_nothing_anew(results, files):
    out, _ = results
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}
    again = invoke(*arguments(files, out), "--recipes", "none", "--baselines", "svm")
    assert again.exit_code == 0, again.output
    assert again.stderr.count("done before") == 2
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")} == before


def test_the_page_comes_again_from_the_rows(results):
    out, _ = results
    before = (out / "results.html").read_text()
    (out / "results.html").unlink()
    result = invoke("benchmark", "--report-only", "--out", out)
    assert result.exit_code == 0, result.output
    assert (out / "results.html").read_text() == before
    ordered = invoke("benchmark", "--report-only", "--out", out, "--metric", "P@1", "--json")
    assert json.loads(ordered.stdout)["metric"] == "P@1"


def test_other_data_do_not_get_in(results, files):
    out, _ = results
    result = invoke(
        "benchmark", files.train, files.test, files.dev, "--out", out, "--threads", 1,
        "--recipes", "none", "--baselines", "svm",
    )  # fmt: skip
    assert result.exit_code == 1
    assert "other texts or labels" in result.stderr


@pytest.mark.slow
def test_a_recipe_keeps_its_model(tmp_path, files):
    result = invoke(
        *arguments(files, tmp_path), "--recipes", "glocalxml", "--baselines", "none",
        "--labels", files.labels, *TINY,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert row["cost"]["train_seconds"] > 0
    assert set(row["report"]["scores"]) == {"combined", "D-last", "A-1", "mean"}
    (work,) = tmp_path.glob("runs/glocalxml-*")
    explained = invoke("explain", work / "model", "the red cat")
    assert "global" in explained.stdout


@pytest.mark.slow
def test_a_row_that_fails_is_noted_and_the_rest_goes_on(tmp_path, files):
    result = invoke(
        *arguments(files, tmp_path), "--recipes", "glocalxml", "--baselines", "svm",
        "--only", "glocalxml,svm", *TINY, "-s", f"encoder.name={tmp_path / 'nowhere'}",
    )  # fmt: skip
    assert result.exit_code == 1
    assert "1 of 2 rows failed: glocalxml" in result.stderr
    page = (tmp_path / "results.md").read_text()
    assert "failed:" in page
    assert "| linear SVM |" in page


def test_wrong_names_come_before_any_work(tmp_path, files):
    for wrong, said in {
        ("--recipes", "glocalxm"): "did you mean 'glocalxml'",
        ("--baselines", "bonsay"): "did you mean 'bonsai'",
        ("--only", "nobody"): "there is no row 'nobody'",
        ("--metric", "F@5"): "cannot be ordered by 'F@5'",
        ("--recipes", "none", "--baselines", "none"): "nothing to measure",
    }.items():
        result = invoke(*arguments(files, tmp_path / "out"), *wrong)
        assert result.exit_code == 1
        assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_place_of_the_folder(files):
    result = invoke(*arguments(files, files.test / "out"), "--recipes", "none")
    assert result.exit_code == 1
    assert f"{files.test} is a file" in result.stderr


def test_all_three_files_are_needed(files, tmp_path):
    result = invoke("benchmark", files.train, files.dev, "--out", tmp_path)
    assert result.exit_code == 1
    assert "TRAIN DEV TEST" in result.stderr


def test_a_report_needs_results(tmp_path):
    result = invoke("benchmark", "--report-only", "--out", tmp_path)
    assert result.exit_code == 1
    assert "not the results of a benchmark" in result.stderr
