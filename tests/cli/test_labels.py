"""`glocal labels`."""

import json
import shutil

VOCABULARY = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://v.example/> .
:fish a skos:Concept ; skos:prefLabel "Fish"@en , "Fisch"@de ; skos:inScheme :s .
:cod a skos:Concept ; skos:prefLabel "Cod"@en ; skos:broader :fish .
:tree a skos:Concept ; skos:prefLabel "Tree"@en .
"""


def read_rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_convert(run, tmp_path):
    source, out = tmp_path / "v.ttl", tmp_path / "labels.jsonl"
    source.write_text(VOCABULARY)
    result = run("labels", "convert", source, "-o", out, "--languages", "de,en",
                 "--branch", "http://v.example/fish")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "Wrote 2 labels" in result.stderr
    assert read_rows(out) == [
        {"id": "http://v.example/fish", "name": "Fisch", "alt_names": ["Fish"]},
        {"id": "http://v.example/cod", "name": "Cod", "parents": ["http://v.example/fish"]},
    ]
    leave = tmp_path / "leave.txt"
    leave.write_text("http://v.example/cod\n")
    again = run("labels", "convert", out, "-o", tmp_path / "l.parquet", "--exclude", leave)
    assert "Wrote 1 label to" in again.stderr


def test_convert_names_what_is_wrong(run, tmp_path):
    source = tmp_path / "v.ttl"
    source.write_text(VOCABULARY + ":x .")
    result = run("labels", "convert", source, "-o", tmp_path / "out.jsonl")
    assert result.exit_code == 1
    assert "v.ttl:6: not valid ttl" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()
    result = run("labels", "convert", source, "-o", tmp_path / "out.xls")
    assert "expected a name ending in .jsonl" in result.stderr


def test_labels_of_a_model_change(run, model, tmp_path):
    copy = shutil.copytree(model, tmp_path / "model")
    new, examples = tmp_path / "new.jsonl", tmp_path / "examples.jsonl"
    new.write_text('{"id": "yak", "name": "Yak"}\n')
    examples.write_text('{"text": "a yak and a yak", "labels": ["yak", "red"]}\n')
    result = run("labels", "add", copy, new, "--examples", examples, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["labels"], document["n_examples"]) == (["yak"], 1)
    again = run("labels", "add", copy, new)
    assert again.exit_code == 1
    assert again.stderr.count("\n") == 1
    assert "the label 'yak' is already in the model" in again.stderr
    assert "Renamed yak; the model has" in run("labels", "rename", copy, "yak", "ox").stderr
    assert "Merged ox into red" in run("labels", "merge", copy, "ox", "--into", "red").stderr
    assert "Removed 1 label;" in run("labels", "remove", copy, "red").stderr
    shown = run("info", copy)
    assert "added 1, renamed 1, merged 1, removed 1" in shown.stdout


def test_nothing_to_do_is_an_error(run, model):
    assert "no labels to remove" in run("labels", "remove", model).stderr
    assert "nothing to change" in run("labels", "rename", model, "red").stderr
