import csv
import gzip
import io
import json
import re
import select
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from glocal import Tagger
from glocal.predict.tag_files import open_writer
from tests.cli.conftest import corpus_rows, write_jsonl


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
    assert len(rows_of(from_file.stdout)) == 24


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


def test_without_k_the_decision_of_the_model_gives_the_tags(run, model, files):
    rows = rows_of(run("predict", model, files.test).stdout)
    texts = [row["text"] for row in rows_of(files.test.read_text())]
    expected = Tagger.load(model).predict(texts)
    assert [[label["id"] for label in row["labels"]] for row in rows] == expected
    assert len({len(labels) for labels in expected}) > 1


def test_several_files_and_patterns(run, model, files, tmp_path):
    for name, text in (("b-2.txt", "the red fox"), ("b-1.txt", "a blue dog")):
        (tmp_path / name).write_text(f"{text}\n")
    result = run("predict", model, files.test, tmp_path / "b-*.txt", "--no-names")
    assert result.exit_code == 0, result.output
    assert len(rows_of(result.stdout)) == 26
    assert [row["id"] for row in rows_of(result.stdout)][-2:] == ["0", "0"]
    result = run("predict", model, tmp_path / "c-*.txt")
    assert result.exit_code == 1
    assert "no file matches this pattern" in result.stderr


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


def test_label_list_that_is_not_utf8(run, model, files, tmp_path):
    (tmp_path / "only.txt").write_bytes("roß\n".encode() + b"caf\xe9\n")
    result = run("predict", model, files.test, "--only", tmp_path / "only.txt")
    assert result.exit_code == 1
    assert "only.txt:2: byte 0xe9 at position 4 is not UTF-8" in result.stderr


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
    assert "expected jsonl, csv, tsv, parquet" in result.stderr


def test_failure_leaves_the_old_output(run, model, tmp_path):
    output = tmp_path / "tags.jsonl"
    output.write_text("old\n")
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "the red cat"}\n{"text": ""}\n')
    result = run("predict", model, path, "--output", output, "--strict")
    assert result.exit_code == 1
    assert f"{path}:2: " in result.stderr
    assert "add --skip-bad-rows to skip such rows" in result.stderr
    assert output.read_text() == "old\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tags.jsonl", "texts.jsonl"]


def test_bad_rows_are_skipped_and_named(run, model, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "the red cat"}\n{"text": ""}\n{"text": "a blue dog"}\n')
    result = run("predict", model, path, "--skip-bad-rows")
    assert result.exit_code == 0
    assert len(rows_of(result.stdout)) == 2
    assert "1 row was skipped" in result.stderr
    assert f"{path}:2: " in result.stderr


@pytest.fixture
def mixed(tmp_path):
    """Two good rows, one with an id that is taken, and four bad ones."""
    path = tmp_path / "texts.jsonl"
    rows = [
        '{"id": "a", "text": "the red cat"}',
        '{"id": "b", "text": ""}',
        '{"id": "c", "text": null}',
        '{"id": "a", "text": "a blue dog"}',
        '{"id": "d", "title": 3}',
        "not json",
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_bad_rows_become_rows_with_an_error(run, model, mixed):
    result = run("predict", model, mixed)
    assert result.exit_code == 0, result.output
    rows = rows_of(result.stdout)
    assert [row["id"] for row in rows] == ["a", "b", "c", "a", "d", None]
    assert [bool(row["labels"]) for row in rows] == [True, False, False, True, False, False]
    errors = [row.get("error") for row in rows]
    assert errors[0] is errors[3] is None
    assert errors[1].startswith(f"{mixed}:2: the text is empty")
    assert errors[2].startswith(f"{mixed}:3: the field 'text' is null")
    assert errors[4].startswith(f"{mixed}:5: the field 'title' is of type int")
    assert errors[5].startswith(f"{mixed}:6: not valid JSON")
    assert "4 rows could not be tagged" in result.stderr


def test_strict_stops_at_the_first_bad_row_and_keeps_those_before(run, model, mixed):
    result = run("predict", model, mixed, "--strict")
    assert result.exit_code == 1
    assert [row["id"] for row in rows_of(result.stdout)] == ["a"]
    assert f"{mixed}:2: the text is empty" in result.stderr
    assert run("predict", model, mixed, "--strict", "--skip-bad-rows").exit_code == 1


def test_no_usable_row_is_an_error(run, model, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": " "}\n')
    result = run("predict", model, tmp_path / "a.jsonl")
    assert result.exit_code == 1
    assert len(rows_of(result.stdout)) == 2
    assert "none of the 2 rows can be used" in result.stderr


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t"), ("csv.gz", ",")])
def test_a_row_for_each_tag(run, model, mixed, tmp_path, ending, delimiter):
    out = tmp_path / f"tags.{ending}"
    assert run("predict", model, mixed, "-k", "2", "-o", out).exit_code == 0
    content = gzip.decompress(out.read_bytes()) if ending.endswith("gz") else out.read_bytes()
    rows = list(csv.DictReader(io.StringIO(content.decode()), delimiter=delimiter))
    assert list(rows[0]) == ["id", "rank", "label", "name", "score", "error"]
    expected = rows_of(run("predict", model, mixed, "-k", "2").stdout)
    tags = [(row["id"], tag["id"]) for row in expected for tag in row["labels"]]
    assert [(row["id"], row["label"]) for row in rows if row["label"]] == tags
    assert [row["rank"] for row in rows][:2] == ["1", "2"]
    assert sum(bool(row["error"]) for row in rows) == 4
    if ending == "csv":
        assert run("predict", model, mixed, "-k", "2", "--to", "csv").stdout == content.decode()


def test_a_table_for_people(run, model, mixed):
    shown = run("predict", model, mixed, "-k", "1", "--to", "table").stdout
    lines = shown.splitlines()
    assert lines[0] == "a"
    assert re.fullmatch(r"  [ \d]{3}\.\d  a \w+  \w+", lines[1])
    assert "the text is empty" in shown


def test_no_file_means_stdin(run, model, files):
    expected = run("predict", model, files.test).stdout
    assert run("predict", model, input=files.test.read_text()).stdout == expected


@pytest.fixture
def pipe(model):
    """A running `glocal predict` that reads a pipe."""
    command = [sys.executable, "-m", "glocal", "-q", "predict", str(model)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process
        process.kill()


def answer(process):
    """The next row, or None when none comes within two minutes."""
    ready, _, _ = select.select([process.stdout], [], [], 120)
    return json.loads(process.stdout.readline()) if ready else None


def test_an_answer_comes_while_input_stays_open(pipe):
    for number, text in enumerate(["the red cat", "", "a blue dog"]):
        pipe.stdin.write(json.dumps({"id": str(number), "text": text}) + "\n")
        pipe.stdin.flush()
        row = answer(pipe)
        assert row is not None, "no answer before the end of the input"
        assert row["id"] == str(number)
        assert ("error" in row) == (text == "")
    pipe.stdin.close()
    assert pipe.wait() == 0


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


def test_annif_folder_in_and_annif_files_out(run, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    subjects = {}
    for number, row in enumerate(corpus_rows(24, 0)):
        (corpus / f"{row['id']}.txt").write_text(row["text"])
        own = {label: f"<http://x/{label}>\t{label}\n" for label in row["labels"]}
        subjects |= own
        if number % 3:
            (corpus / f"{row['id']}.tsv").write_text("".join(own.values()))
        else:  # names alone, which the vocabulary gives ids
            (corpus / f"{row['id']}.key").write_text("".join(f"{label}\n" for label in own))
    vocabulary = tmp_path / "vocabulary.tsv"
    vocabulary.write_text("".join(subjects.values()))
    train = ("train", corpus, "--labels", vocabulary, "--recipe", "fast")
    made = run(*train, "--out", tmp_path / "model")
    assert made.exit_code == 0, made.output
    assert "labels are given by name" in made.stderr
    assert f"{len(subjects)} labels" in made.stderr
    scores = run("eval", tmp_path / "model", corpus, "--json")
    assert json.loads(scores.stdout)["scores"]["combined"]["P@1"] > 0.9
    result = run("predict", tmp_path / "model", corpus, "-k", "2", "--to", "annif")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"(?:(?:<http://x/\w+>\t\S+\t[01]\.\d{4}\n){2}\n?){24}", result.stdout)
    out = tmp_path / "out"
    (corpus / "d0.txt").write_text("")
    result = run("predict", tmp_path / "model", corpus, "-k", "2", "--to", "annif", "-o", out)
    assert result.exit_code == 0, result.output
    assert "d0.txt: the text is empty" in result.stderr
    assert len(list(out.glob("*.annif"))) == 23
    assert re.fullmatch(r"(<http://x/\w+>\t\S+\t[01]\.\d{4}\n){2}", (out / "d1.annif").read_text())


def test_ids_become_safe_file_names(tmp_path):
    with open_writer(tmp_path / "out", to="annif") as write:
        write({"id": name, "labels": []} for name in ("../up", "a/b", "a/b", ".hidden", "x" * 300))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_./up.annif".replace("/", "_"), "_hidden.annif", "a_b-2.annif", "a_b.annif",
                     f"{'x' * 80}.annif"]  # fmt: skip


def test_texts_are_routed_to_the_model_of_their_language(run, models, files, tmp_path):
    german = {"id": "g", "text": "Die Fischerei in der Nordsee wird geregelt, sagt der Rat"}
    english = {"id": "e", "text": "The fishery of the sea is governed by the council"}
    texts = write_jsonl(tmp_path / "texts.jsonl", [german, english])
    first, second = models
    routed = run(
        "predict", first, texts, "-k", "3", "--route", f"en={first}", "--route", f"de={second}"
    )
    assert routed.exit_code == 0, routed.output
    own = [rows_of(run("predict", model, texts, "-k", "3").stdout) for model in models]
    assert rows_of(routed.stdout) == [own[1][0], own[0][1]]
    assert own[0] != own[1]


def test_a_bad_route_is_one_line(run, model, files):
    result = run("predict", model, files.test, "--route", "klingon=model")
    assert result.exit_code == 1
    assert "there is no language 'klingon'" in result.stderr
    assert "Traceback" not in result.output


def test_precision(run, model, files):
    wrong = run("predict", model, files.test, "--precision", "fp8")
    assert wrong.exit_code == 1
    assert "no precision 'fp8'" in wrong.stderr
    fine, coarse = (
        rows_of(run("predict", model, files.test, "-k", "1", "--precision", precision).stdout)
        for precision in ("fp32", "bf16")
    )
    for one, other in zip(fine, coarse, strict=True):
        score, rounded = (row["labels"][0]["score"] for row in (one, other))
        assert rounded == pytest.approx(score, abs=0.05)
