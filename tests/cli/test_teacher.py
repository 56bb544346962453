"""`glocal teacher` on a training file, on a model with a teacher and on one without."""

import json
import re

import numpy as np
import pytest

from tests.cli.conftest import write_jsonl
from tests.tiny import ANIMALS, COLOURS

TEXT = "the red fox"


@pytest.fixture(scope="session")
def vectors(tmp_path_factory):
    """A direction of its own for each word."""
    words = ["the", *ANIMALS, *COLOURS]
    rows = [
        f"{word} {' '.join(map(str, row))}"
        for word, row in zip(words, np.eye(len(words)), strict=True)
    ]
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.fixture
def settings(vectors):
    return ("-s", f"teacher.vectors={vectors}", "-s", "teacher.k=4")


@pytest.fixture(scope="session")
def table(tmp_path_factory, files):
    """A label table with a parent that no text has."""
    rows = [json.loads(line) for line in files.labels.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["parents"] = ["colours"] if row["id"] in COLOURS else []
    rows.append({"id": "colours", "name": "all colours"})
    return write_jsonl(tmp_path_factory.mktemp("table") / "labels.jsonl", rows)


def test_neighbours_votes_and_parents_as_tables(run, files, table, settings):
    result = run("teacher", files.train, TEXT, "--labels", table, *settings)
    assert result.exit_code == 0, result.output
    for words in ("Similar training texts", "Votes", "Parents added", "a fox", "all colours"):
        assert words in result.stdout


def test_a_page_by_default_and_everything_on_request(run, files, table, vectors):
    settings = ("-s", f"teacher.vectors={vectors}", "-s", "teacher.k=60")
    short = run("teacher", files.train, TEXT, "--labels", table, *settings).stdout
    assert short.count("\n") < 60
    assert "more; --all shows them" in short
    assert "in all)" in short
    full = run("teacher", files.train, TEXT, "--labels", table, "--all", *settings).stdout
    assert full.count("\n") > short.count("\n")
    assert "more; --all" not in full


def test_json(run, files, table, settings):
    result = run("teacher", files.train, TEXT, "--labels", table, "--json", *settings)
    found = json.loads(result.stdout)
    assert len(found["neighbours"]) == 4
    assert [v["weight"] for v in found["votes"]] == sorted(
        (v["weight"] for v in found["votes"]), reverse=True
    )
    assert found["votes"][0]["label"] == "fox"
    for vote in found["votes"]:
        voters = [n["id"] for n in found["neighbours"] if vote["label"] in n["labels"]]
        assert vote["neighbours"] == voters
    assert [(p["label"], p["description"]) for p in found["parents"]] == [
        ("colours", "all colours")
    ]
    again = run("teacher", files.train, "-", "--labels", table, "--json", *settings, input=TEXT)
    assert again.stdout == result.stdout


def test_recall_by_k(run, files, settings):
    arguments = ("teacher", files.train, "--recall", files.dev, "-k", "1,5,50", *settings)
    rows = json.loads(run(*arguments, "--json").stdout)["recall"]
    assert [row["k"] for row in rows] == [1, 5, 50]
    recalls = [row["recall"] for row in rows]
    assert recalls == sorted(recalls)
    assert recalls[-1] > 0.9
    shown = run(*arguments).stdout
    assert re.search(rf"\b50\b.*{100 * recalls[-1]:.1f}", shown)


def test_a_text_without_neighbours(run, files, settings):
    result = run("teacher", files.train, "§ ☃", *settings)
    assert result.exit_code == 0
    assert "no word of the text is known" in result.stderr
    assert not result.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either a text"),
        (("text", "--recall", "dev.jsonl"), "give either a text"),
        ((" ",), "the text is empty"),
        (("text", "-k", "none"), "expected whole numbers"),
        (("text", "-s", "teacher.kk=3"), "teacher.kk"),
        (("text", "-s", "teacher.weighting=none"), "one of mean, idf, tfidf"),
    ],
)
def test_wrong_usage(run, files, arguments, message):
    result = run("teacher", files.train, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.fixture
def taught(tmp_path, files, model, table, vectors):
    """A copy of a model's labels with a teacher beside them."""
    import shutil

    from glocal.companions.companion import FitInputs
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.config import EncoderConfig, Recipe, TeacherConfig
    from glocal.data.readers import read_corpus
    from glocal.encoders.static import build_vectors
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import read_label_table

    for name in ("glocal.toml", "labels.parquet"):
        shutil.copy(model / name, tmp_path / name)
    corpus, labels = read_corpus(files.train), LabelSpace.load(model / "labels.parquet")
    config = TeacherConfig(k=4, vectors=str(vectors))
    built = build_vectors(config, EncoderConfig(), corpus)
    recipe = Recipe(teacher=config)
    teacher = Teacher.fit(FitInputs(recipe, corpus, labels, read_label_table(table), built))
    teacher.save(tmp_path / "teacher")
    return tmp_path, teacher


def test_the_teacher_of_a_model(run, files, taught):
    folder, teacher = taught
    result = run("teacher", folder, TEXT, "--json")
    assert result.exit_code == 0, result.output
    expected = json.loads(json.dumps(teacher.similar_texts(TEXT).to_dict()))
    assert json.loads(result.stdout) == expected
    result = run("teacher", folder, "--recall", files.dev)
    assert result.exit_code == 0, result.output
    result = run("teacher", folder, TEXT, "-s", "teacher.k=3")
    assert result.exit_code == 1
    assert "leave out --set" in result.stderr


def test_a_model_without_a_teacher(run, model):
    result = run("teacher", model, TEXT)
    assert result.exit_code == 1
    assert "has no teacher" in result.stderr
    assert "--recipe treaderxml" in result.stderr
