"""`glocal distill`."""

import json

from tests.cli.conftest import TINY, write_jsonl


def test_student_and_its_report(run, model, files, tmp_path):
    more = write_jsonl(tmp_path / "more.jsonl", [{"text": "the black fox"}, {"text": "a hen"}])
    student = tmp_path / "student"
    settings = ["-s", 'experts=["D-last"]', *TINY, "-s", "labels.text=off"]
    result = run(
        "distill", model, files.train, "--dev", files.dev, "--texts", more, "--out", student,
        *settings, "--device", "cpu", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["metrics"]["distillation"]["unlabelled_texts"] == 2
    assert "64 training texts scored by the teacher" in result.stderr
    assert "glocal eval" in result.stderr
    assert run("info", student).exit_code == 0


def test_mistakes_are_one_line(run, model, files, tmp_path):
    out = tmp_path / "student"
    result = run("distill", tmp_path / "nowhere", files.train, "--out", out)
    assert result.exit_code == 1
    assert "there is no model directory" in result.stderr
    assert result.stderr.count("\n") == 1
    result = run("distill", files.train, "--out", out)
    assert "takes MODEL… FILE" in result.stderr
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "a zebra", "labels": ["zebra"]}])
    result = run("distill", model, other, "--out", out, *TINY)
    assert "teacher and student have different labels" in result.stderr
    assert not out.exists()
