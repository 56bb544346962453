"""Which fields of a row hold its text, labels and id."""

import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.data.readers import iter_documents, read_corpus
from glocal.errors import DataError


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_title_and_abstract_are_both_used_and_said(tmp_path, caplog):
    caplog.set_level(logging.INFO, "glocal")
    path = write(tmp_path / "a.jsonl", {"title": "T", "abstract": "A"}, {"title": "only"})
    corpus = read_corpus(path)
    assert corpus.texts() == ["T\nA", "only"]
    assert f"{path}: text from title + abstract (1), title (1)" in caplog.messages
    assert corpus.detected[str(path)]["text"] == "title + abstract (1), title (1)"
    caplog.clear()
    assert [document.text for document in iter_documents(path)] == ["T\nA", "only"]
    assert f"{path}: text from title + abstract (1), title (1)" in caplog.messages


def test_a_plain_file_is_read_without_a_word(tmp_path, caplog):
    caplog.set_level(logging.INFO, "glocal")
    read_corpus(write(tmp_path / "a.jsonl", {"text": "T", "title": "no", "labels": ["a"]}))
    assert caplog.messages == []


def test_several_and_nested_fields_are_joined_in_order(tmp_path):
    row = {"title": "T", "metadata": {"abstract": {"en": "A"}, "id": 7, "tags": ["x"]}, "b": " "}
    path = write(tmp_path / "a.jsonl", row)
    names = ["metadata.abstract.en", "title", "b"]
    corpus = read_corpus(
        path, text_field=names, id_field="metadata.id", labels_field="metadata.tags"
    )
    assert (corpus.texts(), corpus.ids, corpus.labels()) == (["A\nT"], ["7"], [["x"]])


def test_a_field_with_a_dot_in_its_name_is_found(tmp_path):
    path = write(tmp_path / "a.jsonl", {"a.b": "flat", "a": {"b": "nested"}})
    assert read_corpus(path, text_field="a.b").texts() == ["flat"]


def test_nested_columns_of_a_table(tmp_path):
    table = pa.table({"meta": [{"abstract": "A"}], "Title": ["T"], "other": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    fields = ["title", "meta.abstract"]
    assert read_corpus(tmp_path / "a.parquet", text_field=fields).texts() == ["T\nA"]


@pytest.mark.parametrize("name", ["Text", "TEXT"])
def test_names_match_in_any_case(tmp_path, name):
    (tmp_path / "a.csv").write_text(f"ID,{name},Labels\n7,hello,x;y\n")
    corpus = read_corpus(tmp_path / "a.csv")
    assert (corpus.ids, corpus.texts(), corpus.labels()) == (["7"], ["hello"], [["x", "y"]])


def test_a_field_that_no_row_has_is_pointed_out(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", {"title": "T", "abstract": "A"})
    assert read_corpus(path, text_field=["titel", "abstract"]).texts() == ["A"]
    assert caplog.messages == [f"{path}: no row has a text in the field 'titel'"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"x": 1}, r"no field 'title', 'meta.abstract' \(fields: x\)"),
        ({"title": None, "x": 1}, "the field 'title', 'meta.abstract' is null"),
        ({"title": 5, "meta": {"abstract": "A"}}, "the field 'title' is of type int"),
        ({"meta": "A"}, r"no field 'title', 'meta.abstract' \(fields: meta\)"),
    ],
)
def test_rows_without_any_of_the_fields(tmp_path, row, message):
    path = write(tmp_path / "a.jsonl", row)
    with pytest.raises(DataError, match=message):
        read_corpus(path, text_field=["title", "meta.abstract"])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"label": "a"}, ["a"]),
        ({"subjects": [{"uri": "http://x/1", "label": "a"}]}, ["http://x/1"]),
        ({"labels": [{"id": "a", "name": "A", "score": 0.5}]}, ["a"]),
        ({"labels": None, "target_ind": [3]}, ["3"]),
        ({"subject_uris": "<http://x/1> <http://x/2>"}, ["http://x/1", "http://x/2"]),
        ({"labels": "['law', 'tax']"}, ["law", "tax"]),
        ({"labels": '["law", "tax"]'}, ["law", "tax"]),
    ],
)
def test_labels_as_people_have_them(tmp_path, labels, expected):
    assert read_corpus(write(tmp_path / "a.jsonl", {"text": "x", **labels})).labels() == [expected]
