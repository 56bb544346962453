import gzip
import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import write_jsonl


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_one_row_for_each_text_in_order(run, model, files):
    result = run("predict", model, files.test, "-k", "3")
    rows, texts = rows_of(result.stdout), rows_of(files.test.read_text())
    assert [row["id"] for row in rows] == [text["id"] for text in texts]
    for row in rows:
        scores = [label["score"] for label in row["labels"]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert all(label["name"] == f"a {label['id']}" for label in row["labels"])


def test_stdin_gives_the_same(run, model, files):
    from_file = run("predict", model, files.test)
    from_stdin = run("predict", model, "-", input=files.test.read_text())
    assert from_stdin.stdout == from_file.stdout
    assert len(rows_of(from_file.stdout)[0]["labels"]) == 5


def test_formats_agree(run, model, files, tmp_path):
    expected = rows_of(run("predict", model, files.test).stdout)
    for name in ("tags.jsonl", "tags.jsonl.gz", "tags.parquet"):
        result = run("predict", model, files.test, "--output", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert not result.stdout
        assert f"Wrote {tmp_path / name}" in result.stderr
    assert rows_of((tmp_path / "tags.jsonl").read_text()) == expected
    assert rows_of(gzip.decompress((tmp_path / "tags.jsonl.gz").read_bytes()).decode()) == expected
    stored = pq.read_table(tmp_path / "tags.parquet").to_pylist()
    assert [row["id"] for row in stored] == [row["id"] for row in expected]
    assert stored[0]["labels"][0]["name"] == expected[0]["labels"][0]["name"]
    assert stored[0]["labels"][0]["score"] == pytest.approx(expected[0]["labels"][0]["score"])


def test_no_names(run, model, files):
    rows = rows_of(run("predict", model, files.test, "--no-names").stdout)
    assert set(rows[0]["labels"][0]) == {"id", "score"}


def test_threshold_leaves_out_the_rest(run, model, files):
    every = rows_of(run("predict", model, files.test, "-k", "15").stdout)
    some = rows_of(run("predict", model, files.test, "-k", "15", "--threshold", "0.2").stdout)
    for all_labels, kept in zip(every, some, strict=True):
        assert kept["labels"] == [label for label in all_labels["labels"] if label["score"] >= 0.2]
    assert sum(len(row["labels"]) for row in some) < sum(len(row["labels"]) for row in every)


def test_only_and_exclude(run, model, files, tmp_path):
    (tmp_path / "colours.txt").write_text("red\nblue\n\ngreen\n")
    (tmp_path / "not.txt").write_text("blue\n")
    rows = rows_of(
        run(
            "predict", model, files.test, "-k", "5",
            "--only", tmp_path / "colours.txt", "--exclude", tmp_path / "not.txt",
        ).stdout
    )  # fmt: skip
    assert all({label["id"] for label in row["labels"]} == {"red", "green"} for row in rows)


def test_unknown_label_in_a_list(run, model, files, tmp_path):
    (tmp_path / "only.txt").write_text("mauve\n")
    result = run("predict", model, files.test, "--only", tmp_path / "only.txt")
    assert result.exit_code == 1
    assert "mauve" in result.stderr


def test_empty_label_list(run, model, files, tmp_path):
    (tmp_path / "only.txt").write_text("\n")
    result = run("predict", model, files.test, "--only", tmp_path / "only.txt")
    assert result.exit_code == 1
    assert "one on each line" in result.stderr


def test_absent_label_list(run, model, files, tmp_path):
    result = run("predict", model, files.test, "--only", tmp_path / "absent.txt")
    assert result.exit_code == 1
    assert str(tmp_path / "absent.txt") in result.stderr


def test_k_above_the_number_of_labels(run, model, files):
    result = run("predict", model, files.test, "-k", "16")
    assert result.exit_code == 1
    assert "15 labels" in result.stderr
    assert not result.stdout


def test_unknown_output_format(run, model, files, tmp_path):
    result = run("predict", model, files.test, "--output", tmp_path / "tags.xlsx")
    assert result.exit_code == 1
    assert ".parquet" in result.stderr


def test_failure_leaves_the_old_output(run, model, tmp_path):
    output = tmp_path / "tags.jsonl"
    output.write_text("old\n")
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "the red cat"}\n{"text": ""}\n')
    result = run("predict", model, path, "--output", output)
    assert result.exit_code == 1
    assert f"{path}:2: " in result.stderr
    assert output.read_text() == "old\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tags.jsonl", "texts.jsonl"]


def test_bad_rows_are_skipped_and_named(run, model, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "the red cat"}\n{"text": ""}\n{"text": "a blue dog"}\n')
    result = run("predict", model, path, "--skip-bad-rows")
    assert result.exit_code == 0
    assert len(rows_of(result.stdout)) == 2
    assert "1 row was left out" in result.stderr
    assert f"{path}:2: " in result.stderr


def test_unwritable_place(run, model, files, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("predict", model, files.test, "--output", tmp_path / "file" / "tags.jsonl")
    assert result.exit_code == 1
    assert str(tmp_path / "file") in result.stderr
    assert "Traceback" not in result.stderr


def test_text_without_terminal_has_no_control_characters(run, model, files):
    assert "\x1b" not in run("predict", model, files.test).output


@pytest.mark.slow
def test_reader_that_goes_away(model, tmp_path):
    texts = write_jsonl(tmp_path / "many.jsonl", [{"text": f"cat {i}"} for i in range(3_000)])
    command = [sys.executable, "-m", "glocal", "--quiet", "predict", str(model), str(texts)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    json.loads(process.stdout.readline())
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == ""
    process.stderr.close()
