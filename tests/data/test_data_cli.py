import json

import pytest
from typer.testing import CliRunner

from glocal.cli import console
from glocal.cli.data import app
from glocal.data.readers import read_corpus
from glocal.errors import ConfigError, DataError

runner = CliRunner()
LABELS = ["red", "blue", "green", "grey"]


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.fixture
def data(tmp_path):
    rows = [
        {"text": f"text number {chr(97 + i)}", "labels": ["a", LABELS[i % 4]]} for i in range(20)
    ]
    return write(tmp_path / "all.jsonl", rows)


def run(*arguments):
    return runner.invoke(app, list(arguments), catch_exceptions=False)


def test_inspect_shows_tables_and_curve(data, tmp_path):
    (tmp_path / "sub").mkdir()
    other = write(tmp_path / "sub" / "all.jsonl", [{"text": "more", "labels": ["new"]}])
    result = run("inspect", data, other)
    assert result.exit_code == 0
    for shown in (
        "documents",
        "near-duplicates",
        "few",
        "Label frequencies",
        "sub/all.jsonl",
        "No",
    ):
        assert shown in result.stdout
    assert any(0x2800 < ord(character) < 0x2900 for character in result.stdout)


def test_inspect_json(data, monkeypatch):
    monkeypatch.setattr(console.settings, "as_json", True)
    report = json.loads(run("inspect", "--bands", "rare=1-9,common=10-", data).stdout)
    assert report["splits"][0]["bands"] == {"rare": 4, "common": 1}
    assert report["overlaps"] == []


def test_inspect_lists_problems_and_fails(tmp_path):
    path = write(tmp_path / "bad.jsonl", [{"text": "x"}, {"text": ""}, {"text": "y", "labels": 5}])
    result = run("inspect", path)
    assert result.exit_code == 1
    assert f"{path}:2: the text is empty" in result.stdout
    assert f"{path}:3: the field 'labels'" in result.stdout
    assert "2 problems" in result.stdout


def test_inspect_checks_the_label_table(data, tmp_path):
    labels = write(tmp_path / "labels.jsonl", [{"id": "a"}, {"id": "red"}, {"id": "blue"}])
    result = run("inspect", data, "--labels", labels)
    assert result.exit_code == 1
    assert "the label 'green' is not in the label table" in result.stdout
    assert "2 problems" in result.stdout


def test_inspect_limits_what_it_shows(tmp_path):
    path = write(tmp_path / "bad.jsonl", [{"text": "x"}] + [{"text": ""}] * 60)
    result = run("inspect", path)
    assert result.stdout.count("the text is empty") == 50
    assert "--json lists all of them" in result.stdout


def test_inspect_says_what_was_detected_and_what_is_odd(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes("Title;Abstract;Labels\nUn café;fermé;1|2\nUn thé;;2|3\n".encode("latin-1"))
    with monkeypatch.context() as wanted:
        wanted.setattr(console.settings, "as_json", True)
        (found,) = json.loads(run("inspect", str(path)).stdout)["splits"]
    assert found["detected"][str(path)] == {
        "format": "csv",
        "compression": "",
        "encoding": "windows-1252",
        "delimiter": ";",
        "text": "Title + Abstract (1), Title (1)",
        "labels": "Labels",
        "label_separator": "|",
    }
    result = run("inspect", str(path))
    assert result.exit_code == 0
    for said in ("WINDOWS-1252", "look like ids ('1', '2', '3')", "add --labels", "1 warning"):
        assert said in result.stdout
    assert "No problems" not in result.stdout
    result = run("inspect", str(path), "--label-separator", ";", "--text-field", "abstract,title")
    assert "2 of 2 labels contain '|'" in result.stdout
    assert "add --label-separator to split them" in result.stdout
    assert "Abstract + Title" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_split_writes_three_parts(data, tmp_path, ending):
    out = tmp_path / "parts"
    result = run("split", data, "-o", str(out), "--to", ending, "--fractions", "0.6,0.2,0.2")
    assert result.exit_code == 0
    assert result.stdout == ""
    sizes = [len(read_corpus(out / f"{name}.{ending}")) for name in ("train", "dev", "test")]
    assert sizes == [12, 4, 4]


def test_split_refuses_to_overwrite(data, tmp_path):
    (tmp_path / "test.jsonl").write_text("mine")
    arguments = ("split", data, "-o", str(tmp_path), "--fractions", "0.8,0.2")
    with pytest.raises(ConfigError, match=r"test\.jsonl already exist; add --overwrite"):
        run(*arguments)
    assert (tmp_path / "test.jsonl").read_text() == "mine"
    assert not (tmp_path / "train.jsonl").exists()
    assert run(*arguments, "--force").exit_code == 0
    assert len(read_corpus(tmp_path / "test.jsonl")) == 4


def test_split_is_reproducible(data, tmp_path):
    for folder in ("1", "2"):
        run("split", data, "-o", str(tmp_path / folder), "--seed", "5")
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_split_skips_bad_rows_only_when_told(data, tmp_path):
    with open(data, "a") as file:
        file.write('\n{"text": ""}')
    arguments = ("split", data, "-o", str(tmp_path / "parts"))
    with pytest.raises(DataError, match=r"all\.jsonl:21: the text is empty"):
        run(*arguments)
    result = run(*arguments, "--skip-bad-rows")
    assert result.exit_code == 0
    assert "all.jsonl:21: the text is empty" in result.stderr
    assert "1 row was skipped" in result.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--fractions", "a,b"), "expected two or three numbers"),
        (("--fractions", "1"), "expected two or three numbers"),
        (("--fractions", "0.5,0.2,0.2"), "must sum to 1"),
        (("--to", "csv"), "expected a name ending in"),
    ],
)
def test_split_options_are_checked(data, tmp_path, option, message):
    with pytest.raises(ConfigError, match=message):
        run("split", data, "-o", str(tmp_path / "parts"), *option)
