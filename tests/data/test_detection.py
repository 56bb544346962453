"""What is detected about files: compression, encoding, delimiter, separator, kind."""

import bz2
import codecs
import gzip
import io
import json
import logging
import lzma
import sys
import types
import zipfile

import pyarrow as pa
import pyarrow.feather
import pytest

from glocal.data.formats import compression, source
from glocal.data.formats.separators import detect_separator
from glocal.data.readers import iter_documents, read_corpora, read_corpus
from glocal.errors import ConfigError, DataError

ROWS = b'{"text": "one", "labels": ["a"]}\n{"text": "two", "labels": []}\n'


def zstd(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


@pytest.mark.parametrize("ending", PACKED)
def test_compressed_files_and_streams(tmp_path, monkeypatch, ending):
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(PACKED[ending](ROWS))
    assert read_corpus(path).texts() == ["one", "two"]
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    assert [document.text for document in iter_documents("-")] == ["one", "two"]


@pytest.mark.parametrize("ending", PACKED)
def test_truncated_compression_is_one_clear_error(tmp_path, ending):
    path = tmp_path / f"a.jsonl.{ending}"
    rows = b"".join(b'{"text": "number %d"}\n' % (i * 7919) for i in range(20_000))
    path.write_bytes(PACKED[ending](rows)[:-2000])
    with pytest.raises(DataError, match=r"data is truncated or damaged"):
        read_corpus(path)


@pytest.mark.parametrize("ending", PACKED)
def test_decompression_is_bounded(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(compression, "MAX_BEFORE_RATIO", 1 << 20)
    path = tmp_path / f"bomb.jsonl.{ending}"
    path.write_bytes(PACKED[ending](b'{"text": "x"}\n' * 1_000_000))
    with pytest.raises(DataError, match="grows to more than 200 times its size"):
        read_corpus(path)


def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * (3 << 20))
    with pytest.raises(DataError, match=r"a\.txt:2: the line is longer than 1 MiB"):
        read_corpus(path)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    with pytest.raises(DataError, match=r"input:2: the line is longer than 1 MiB"):
        list(iter_documents("-"))


@pytest.mark.parametrize("name", ["a.feather", "a", "a.feather.gz"])
def test_feather(tmp_path, name):
    labels = [["x", "y"], ["z"]]
    table = pa.table({"text": ["one", "two"], "labels": labels, "more": [1, 2]})
    path = tmp_path / name
    pyarrow.feather.write_feather(table, str(path))
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_corpus(path).labels() == labels


def test_arrow_streams_and_damaged_files(tmp_path):
    table = pa.table({"text": [f"number {i}" for i in range(5000)]})
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "w") as file,
        pa.ipc.new_stream(file, table.schema) as w,
    ):
        w.write_table(table)
    assert len(read_corpus(tmp_path / "a.arrow")) == 5000
    whole = tmp_path / "whole.feather"
    pyarrow.feather.write_feather(table, str(whole))
    (tmp_path / "a.feather").write_bytes(whole.read_bytes()[:-500])
    with pytest.raises(DataError, match="the Feather data is truncated or damaged"):
        read_corpus(tmp_path / "a.feather")


OBJECTS = [{"text": f"text {i}\n[{i}", "labels": ["a", str(i)]} for i in range(50)]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(OBJECTS),
        json.dumps(OBJECTS, indent=2),
        "\n".join(json.dumps(row, indent=2) for row in OBJECTS),
        "\ufeff" + json.dumps(OBJECTS, indent=1),
    ],
    ids=["array", "pretty array", "pretty objects", "byte order mark"],
)
@pytest.mark.parametrize("block", [7, 1 << 18])
def test_json_over_several_lines(tmp_path, monkeypatch, content, block):
    monkeypatch.setattr(source, "HEAD_BYTES", max(block, 64))
    path = tmp_path / "a.json"
    path.write_text(content)
    corpus = read_corpus(path)
    assert corpus.texts() == [row["text"] for row in OBJECTS]
    assert corpus.labels() == [row["labels"] for row in OBJECTS]


def test_elements_of_an_array_are_named_by_their_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[\n {"text": "one"},\n 12,\n {"text": ""},\n {"text": "two"}\n]\n')
    corpus = read_corpus(path, skip_bad_rows=True)
    assert corpus.texts() == ["one", "two"]
    assert [problem.split(": ")[0] for problem in corpus.skipped] == [f"{path}:3", f"{path}:4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[\n{"text": "one"},\n{"text": oops},\n', r"a\.json:3: not valid JSON"),
        ('[{"text": "one"},\n', "the JSON array is not closed; the file may be truncated"),
        ('[{"text": "one"}, {"text": "tw', "not valid JSON .*the file may be truncated"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_arrays(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_corpus(tmp_path / "a.json", skip_bad_rows=True)


TEXT = 'text;labels\n"naïve café";a|b\nœuvre;b|c\n'


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (codecs.BOM_UTF8 + TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-16"), "utf-16"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-16"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-32"), "utf-32"),
        (TEXT.encode("windows-1252"), "windows-1252"),
    ],
)
def test_encodings_are_detected_and_said(tmp_path, caplog, content, encoding):
    caplog.set_level(logging.INFO, "glocal")
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    corpus = read_corpus(path)
    assert corpus.texts() == ["naïve café", "œuvre"]
    assert corpus.detected[str(path)]["encoding"] == encoding
    said = "columns separated by ';', labels separated by '|'"
    if encoding != "utf-8":
        said = f"encoding {encoding.upper()}, {said}"
    assert caplog.messages == [f"{path}: {said}"]


def test_an_encoding_can_be_given(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("привет\n".encode("koi8-r"))
    assert read_corpus(path, encoding="koi8-r").texts() == ["привет"]
    with pytest.raises(DataError, match="is not UTF-8"):
        read_corpus(path)
    for name in ("no-such", "base64", "\0"):
        with pytest.raises(ConfigError, match="unknown encoding"):
            read_corpus(path, encoding=name)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Ein Mädchen aus Köln", "latin-1"),
        ("l’été à Orléans est chaud et sec", "windows-1252"),
        ("price 5 привет мир and some more text in English after it", "koi8-r"),
        ("title: これは日本語の文です, with some English text around it", "shift_jis"),
        ("Ελληνικά: some English text that makes up most of the line", "iso8859-7"),
    ],
)
def test_only_western_texts_are_read_as_such(tmp_path, text, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    if encoding in ("latin-1", "windows-1252"):
        assert read_corpus(path).texts() == [text]
    else:
        with pytest.raises(DataError, match="is not UTF-8"):
            read_corpus(path)


def test_damaged_utf16(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("one\ntwo\n".encode("utf-16") + b"\x00\xd8\x00")
    with pytest.raises(DataError, match="the text is not valid UTF-16"):
        read_corpus(path)
    path.write_text("no byte order mark")
    with pytest.raises(DataError, match="the text is not UTF-16"):
        read_corpus(path, encoding="utf-16")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_delimiters(tmp_path, delimiter, name):
    rows = ["id,Text,labels,note", "1,one,x,n", "2,two,y,n"]
    (tmp_path / name).write_text("\n".join(rows).replace(",", delimiter))
    corpus = read_corpus(tmp_path / name)
    assert (corpus.texts(), corpus.labels()) == (["one", "two"], [["x"], ["y"]])


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["a;b", "b;c"], ";"),
        (["a|b", "b"], "|"),
        (["a,b", "b,c", "a"], ","),
        (["a,b", "c,d"], ","),
        (["a, b", "b, c", "c, a"], ","),
        (["Agriculture, forestry and fishing", "Mining", "Tax, direct", "Mining"], ";"),
        (["Law, general;Tax", "Tax;Art, fine"], ";"),
        (["one", "two"], ";"),
        (['["a,b", "c"]', "", "['a,b']"], ""),
    ],
)
def test_separators_of_labels(cells, separator):
    assert detect_separator(cells) == separator


def test_bad_rows_keep_their_place_when_rows_are_read_ahead(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "labels": "a|b"}\n{oops\n{"text": "two", "labels": "b"}\n')
    corpus = read_corpus(path, skip_bad_rows=True)
    assert (corpus.ids, corpus.labels()) == (["0", "2"], [["a", "b"], ["b"]])


def test_fasttext(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("__label__red __label__fox the red fox\n__label__dog a my__label__ dog\n")
    corpus = read_corpus(path)
    assert corpus.texts() == ["the red fox", "a my__label__ dog"]
    assert corpus.labels() == [["red", "fox"], ["dog"]]
    assert corpus.detected[str(path)]["format"] == "fasttext"


def docx():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04" + bytes(40), "a ZIP archive"),
        (docx(), r"a Word document \(DOCX\)"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\xff\xd8\xff\xe0", "a JPEG image"),
        (b"FEA1", "a Feather file of version 1"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x80\x04\x95\x10\0\0", "a Python pickle"),
        (b"\xd0\xcf\x11\xe0", "an old Word or Excel file"),
        (bytes(257) + b"ustar", "a tar archive"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (bytes(range(256)) * 4, "binary data of an unknown kind"),
        (bytes(1000), "binary data of an unknown kind"),
        (gzip.compress(b"%PDF-1.7\n", mtime=0), "a PDF document"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_files_of_another_kind(tmp_path, content, kind, name):
    name = "a.txt" if "HTML" in kind else name  # a cell of a CSV file may begin with anything
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"the file is {kind}") as caught:
        read_corpus(tmp_path / name, skip_bad_rows=True)
    assert "iconv" not in str(caught.value)


def test_patterns_and_several_files(tmp_path):
    for name in ("part-2.jsonl", "part-1.jsonl", "part-3.jsonl.gz", "other.jsonl"):
        content = json.dumps({"text": name}).encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if "gz" in name else content)
    parts = ["part-1.jsonl", "part-2.jsonl", "part-3.jsonl.gz"]
    pattern = tmp_path / "part-*.jsonl*"
    assert read_corpus(pattern).texts() == parts
    assert read_corpora([pattern, tmp_path / "other.jsonl"]).texts() == [*parts, "other.jsonl"]
    assert [document.text for document in iter_documents(pattern)] == parts
    with pytest.raises(DataError, match="no file matches this pattern"):
        read_corpus(tmp_path / "none-*")
    (tmp_path / "[x].jsonl").write_text('{"text": "literal"}')
    assert read_corpus(tmp_path / "[x].jsonl").texts() == ["literal"]
