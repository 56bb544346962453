import json

import pytest

from glocal.data.corpus import Corpus
from glocal.data.writers import write_corpus
from glocal.errors import ConfigError

CORPUS = Corpus.from_texts(["ä text", "two"], [["b", "a"], []], ["x", "y"])


def test_jsonl_is_plain(tmp_path):
    write_corpus(CORPUS, tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines[0] == '{"id": "x", "text": "ä text", "labels": ["b", "a"]}'
    assert json.loads(lines[1]) == {"id": "y", "text": "two", "labels": []}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet", "a.jsonl"])
def test_same_corpus_same_bytes(tmp_path, name):
    write_corpus(CORPUS, tmp_path / "1" / name)
    write_corpus(CORPUS, tmp_path / "2" / name)
    assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_failure_leaves_the_old_file(tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(b"old")

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glocal.data.writers.pq.write_table", full)
    monkeypatch.setattr("glocal.data.writers._write_lines", full)
    with pytest.raises(OSError, match="No space"):
        write_corpus(CORPUS, tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_unknown_ending(tmp_path):
    with pytest.raises(ConfigError, match=r"ending in \.jsonl, \.jsonl\.gz, \.parquet"):
        write_corpus(CORPUS, tmp_path / "a.csv")
