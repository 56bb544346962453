"""Round trips through every format, and what the readers make of optional fields."""

import csv
import gzip
import io
import json
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glocal.data.corpus import Corpus
from glocal.data.formats.detect import FORMATS
from glocal.data.readers import iter_documents, read_corpus
from glocal.data.writers import write_corpus
from glocal.errors import ConfigError, MissingExtraError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda t: t.strip())
LINE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t\ufeff"), min_size=1
).filter(lambda t: t.strip())
LABEL = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
# Labels are distinct in a document.
LABELS = st.lists(LABEL, max_size=4, unique=True)


def rows_of(text, labels=LABELS):
    return st.lists(st.tuples(text, labels), min_size=1, max_size=8)


def write_jsonl(path, rows):
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
    return path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_delimited(delimiter, joined):
    def write(path, rows):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(["text", "labels"])
            for text, labels in rows:
                writer.writerow([text, ";".join(labels) if joined else json.dumps(labels)])

    return write


def write_parquet(path, rows):
    pq.write_table(pa.table({"text": [t for t, _ in rows], "labels": [ls for _, ls in rows]}), path)


def write_annif(path, rows):
    lines = [f"{text}\t{' '.join(f'<{label}>' for label in labels)}" for text, labels in rows]
    path.write_bytes("\n".join(lines).encode())


def write_xmc(path, rows):
    path.write_bytes("".join(f"{text}\n" for text, _ in rows).encode())
    labels = path.with_name(path.name.replace("texts", "labels").replace("raw_", ""))
    labels.write_bytes("".join(f"{' '.join(ls)}\n" for _, ls in rows).encode())


def rows_read(path, **options):
    corpus = read_corpus(path, **options)
    assert corpus.ids == [str(row) for row in range(len(corpus))]
    streamed = list(iter_documents(path, **options))
    assert [document.text for document in streamed] == corpus.texts()
    return list(zip(corpus.texts(), corpus.labels(), strict=True))


def check_round_trip(folder, name, write, rows):
    path = folder / name
    write(path, rows)
    assert rows_read(path) == rows
    zipped = folder / f"{name}.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert rows_read(zipped) == rows


round_trip = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@round_trip
@given(rows=rows_of(TEXT))
def test_jsonl_round_trip(tmp_path, rows):
    check_round_trip(tmp_path, "a.jsonl", write_jsonl, rows)


@round_trip
@given(rows=rows_of(TEXT.filter(lambda t: "\r" not in t and "\0" not in t)))
@pytest.mark.parametrize("joined", [True, False], ids=["separator", "json"])
@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_delimited_round_trip(tmp_path, ending, delimiter, joined, rows):
    check_round_trip(tmp_path, f"a.{ending}", write_delimited(delimiter, joined), rows)


@round_trip
@given(rows=rows_of(TEXT))
def test_parquet_round_trip(tmp_path, rows):
    check_round_trip(tmp_path, "a.parquet", write_parquet, rows)


@round_trip
@given(rows=rows_of(LINE))
def test_annif_round_trip(tmp_path, rows):
    path = tmp_path / "a.tsv"
    write_annif(path, rows)
    assert rows_read(path, format="annif") == rows


@round_trip
@given(rows=rows_of(LINE))
@pytest.mark.parametrize("name", ["train_texts.txt", "train_raw_texts.txt"])
def test_xmc_text_round_trip(tmp_path, name, rows):
    check_round_trip(tmp_path, name, write_xmc, rows)


@pytest.mark.parametrize("text", ["{", "PAR1", "2 3 4"])
def test_a_text_beside_its_labels_may_look_like_another_format(tmp_path, text):
    check_round_trip(tmp_path, "train_texts.txt", write_xmc, [(text, ["a"])])


@round_trip
@given(rows=rows_of(TEXT))
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_what_we_write_we_read(tmp_path, name, rows):
    ids = [f"document {i}" for i in range(len(rows))]
    corpus = Corpus.from_texts([t for t, _ in rows], [ls for _, ls in rows], ids)
    write_corpus(corpus, tmp_path / name)
    assert read_corpus(tmp_path / name).table.equals(corpus.table)


def test_huggingface_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "labels": datasets.Sequence(datasets.ClassLabel(names=["law", "art"])),
        }
    )
    rows = {"text": ["one", "two"], "labels": [[1, 0], []]}
    saved = datasets.Dataset.from_dict(rows, features=features)
    saved.save_to_disk(tmp_path / "saved")
    assert rows_read(tmp_path / "saved") == [("one", ["art", "law"]), ("two", [])]
    datasets.DatasetDict({"train": saved}).save_to_disk(tmp_path / "splits")
    with pytest.raises(Exception, match=r"name one of them: .*splits/train"):
        read_corpus(tmp_path / "splits")
    assert len(read_corpus(tmp_path / "splits" / "train")) == 2


def test_missing_extra_names_the_install_line(tmp_path, monkeypatch):
    (tmp_path / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[datasets\]'"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"title": "T", "content": "C"}, "T\nC"),
        ({"title": "T", "content": " "}, "T"),
        ({"content": "C"}, "C"),
        ({"title": "T", "text": "X"}, "X"),
    ],
)
def test_title_and_content_stand_in_for_text(tmp_path, row, text):
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    assert read_corpus(tmp_path / "a.jsonl").texts() == [text]


def test_xmc_json_fields(tmp_path):
    rows = [{"uid": "B01", "title": "A lamp", "content": "", "target_ind": [3, 14]}]
    path = tmp_path / "trn.json.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    corpus = read_corpus(path)
    assert corpus.ids == ["B01"]
    assert corpus.texts() == ["A lamp"]
    assert corpus.labels() == [["3", "14"]]


def test_named_fields_and_separator(tmp_path):
    (tmp_path / "a.csv").write_text("key,body,tags\n7,hello,x|y\n")
    options = {"text_field": "body", "labels_field": "tags", "id_field": "key"}
    corpus = read_corpus(tmp_path / "a.csv", label_separator="|", **options)
    assert (corpus.ids, corpus.texts(), corpus.labels()) == (["7"], ["hello"], [["x", "y"]])


def test_quoted_fields_span_lines_and_long_fields_pass(tmp_path):
    long = "word " * 100_000
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "labels"], ['say "hi",\nthen go', "a"], [long, "b"]])
    documents = list(iter_documents(tmp_path / "a.csv"))
    assert [d.text for d in documents] == ['say "hi",\nthen go', long]
    assert [d.line for d in documents] == [2, 4]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a", b'\xef\xbb\xbf{"text": "x y"}\n', ["x y"]),
        ("a.txt", b"one text\r\nanother\r\n", ["one text", "another"]),
        ("a.tsv", b"title\tlabels\nx\ta\n", ["x"]),
        ("a.tsv", b"some text\t<http://a/1> <http://a/2>\n", ["some text"]),
        ("data", b"id,text\n1,x\n", ["x"]),
    ],
)
def test_detection_by_content(tmp_path, name, content, texts):
    (tmp_path / name).write_bytes(content)
    assert read_corpus(tmp_path / name).texts() == texts


def test_parquet_is_known_by_its_first_bytes(tmp_path):
    write_parquet(tmp_path / "data", [("x", ["a"])])
    assert read_corpus(tmp_path / "data").labels() == [["a"]]


def stdin_of(content):
    return types.SimpleNamespace(buffer=io.BytesIO(content))


def test_standard_input(tmp_path, monkeypatch):
    write_parquet(tmp_path / "a.parquet", [("from parquet", ["a"])])
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    for content, texts in [
        (lines, ["one", "two"]),
        (gzip.compress(lines), ["one", "two"]),
        (b"just a text\n", ["just a text"]),
        ((tmp_path / "a.parquet").read_bytes(), ["from parquet"]),
    ]:
        monkeypatch.setattr(sys, "stdin", stdin_of(content))
        assert [document.text for document in iter_documents("-")] == texts


def test_streaming_does_not_read_ahead(monkeypatch):
    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            line = b'{"text": "again"}\n'
            buffer[: len(line)] = line
            return len(line)

    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BufferedReader(Endless())))
    documents = iter_documents("-")
    assert [next(documents).id for _ in range(3)] == ["0", "1", "2"]


def test_unknown_format_lists_the_known_ones(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}')
    with pytest.raises(ConfigError, match=", ".join(FORMATS)):
        read_corpus(tmp_path / "a.jsonl", format="xml")
