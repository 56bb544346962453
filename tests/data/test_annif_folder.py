import json

import pytest

from glocal.data.readers import iter_documents, read_corpus
from glocal.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.txt").write_text("the red fox\n\nruns away\n")
    (tmp_path / "b.tsv").write_text("<http://x/red>\tred\n<http://x/fox>\tfox\n\n")
    (tmp_path / "b.key").write_text("not read\n")
    (tmp_path / "a.txt").write_bytes("ein Mädchen aus Köln".encode("latin-1"))
    (tmp_path / "a.key").write_text("girl\nCologne\ngirl\n")
    (tmp_path / "c.txt").write_text("no labels")
    (tmp_path / "notes.md").write_text("ignored")
    return tmp_path


def test_texts_and_labels(folder):
    corpus = read_corpus(folder)
    assert corpus.ids == ["a", "b", "c"]
    assert corpus.texts() == ["ein Mädchen aus Köln", "the red fox\n\nruns away", "no labels"]
    assert corpus.labels() == [["girl", "Cologne"], ["http://x/red", "http://x/fox"], []]
    assert corpus.detected[str(folder)]["format"] == "annif-folder"


def test_a_bad_file_is_named_and_may_be_skipped(folder):
    (folder / "aa.txt").write_text(" \n")
    (folder / "b.txt").write_bytes(b"%PDF-1.7")
    with pytest.raises(DataError, match=r"aa\.txt: the text is empty"):
        read_corpus(folder)
    corpus = read_corpus(folder, skip_bad_rows=True)
    assert corpus.ids == ["a", "c"]
    assert "b.txt: the file is a PDF document" in corpus.skipped[1]
    errors = []
    list(iter_documents(folder, on_bad_row=errors.append))
    assert [error.document_id for error in errors] == ["aa", "b"]


def test_training_wants_labels(folder):
    with pytest.raises(DataError, match="the row has no labels"):
        read_corpus(folder, require_labels=True)


def test_a_folder_without_texts(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x"}))
    with pytest.raises(DataError, match="is a folder; expected a file"):
        read_corpus(tmp_path)
