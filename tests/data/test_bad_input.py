"""Every kind of bad input gives one clear error with file and line, or is skipped and noted."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.data.readers import iter_documents, read_corpus
from glocal.errors import DataError

GOOD = {"text": "a text", "labels": ["a"]}


def jsonl(*rows):
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def check_row(path, *, line, message, texts, ids, **options):
    """The row at `line` is refused with `message`; skipping it leaves `texts`."""
    with pytest.raises(DataError, match=message) as caught:
        read_corpus(path, **options)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert "\n" not in str(caught.value)
    corpus = read_corpus(path, skip_bad_rows=True, **options)
    assert corpus.texts() == texts
    assert corpus.ids == ids
    assert corpus.skipped == [caught.value.message]
    noted = []
    if not options.pop("unique_ids", False):
        streamed = list(iter_documents(path, on_bad_row=noted.append, **options))
        assert [document.text for document in streamed] == texts
        assert [error.message for error in noted] == corpus.skipped


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "", "labels": ["a"]}, "the text is empty"),
        ({"text": " \n", "labels": ["a"]}, "the text is empty"),
        ({"labels": ["a"]}, r"no field 'text' \(fields: labels\)"),
        ({"text": 5}, "the field 'text' is of type int, expected a string"),
        ({"text": ["x"]}, "the field 'text' is a list, expected a string"),
        ({"text": "x", "labels": {"a": 1}}, "the field 'labels' is an object"),
        ({"text": "x", "labels": [1.5]}, "a label is a decimal number"),
        ({"text": "x", "labels": [True]}, "a label is a boolean"),
        ({"text": "x", "labels": [""]}, "a label is blank"),
        ({"text": "x", "labels": [None]}, "a label is null"),
        ({"text": "x", "id": [1]}, "the id is a list"),
        ({"text": "\ud800"}, "not valid Unicode"),
        ('{"text": "x",}', "not valid JSON .*at column"),
        ("[" * 100_000, "not valid JSON"),
        ('"x"', "expected a JSON object"),
        ({"text": None}, "the field 'text' is null, expected a string"),
    ],
)
def test_bad_json_row(tmp_path, row, message):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(GOOD, row, {"text": "another", "labels": []}))
    check_row(path, line=2, message=message, texts=["a text", "another"], ids=["0", "2"])


def test_row_without_labels_is_refused_only_where_labels_are_required(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(GOOD, {"text": "bare"}))
    assert read_corpus(path).labels() == [["a"], []]
    check_row(
        path, line=2, message="has no labels", texts=["a text"], ids=["0"], require_labels=True
    )


def test_duplicate_id(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl({**GOOD, "id": 1}, {**GOOD, "id": "1"}, {**GOOD, "id": "2"}))
    assert read_corpus(path).ids == ["1", "1", "2"]
    assert [document.id for document in iter_documents(path)] == ["1", "1", "2"]
    message = "the id '1' is that of an earlier row"
    check_row(path, line=2, message=message, texts=["a text"] * 2, ids=["1", "2"], unique_ids=True)


def test_rows_without_an_id_get_their_position(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl({**GOOD, "id": "x"}, GOOD, {"text": ""}, GOOD))
    assert read_corpus(path, skip_bad_rows=True).ids == ["x", "1", "3"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_line_that_is_not_utf8_is_named(tmp_path, name):
    first, second = (
        ("onë", "caf\u00e9") if name == "a.txt" else ('{"text": "onë"}', '{"text": "é"}')
    )
    path = tmp_path / name
    utf8 = f"{first}\n".encode()
    path.write_bytes(utf8 + f"{second}\n".encode("latin-1") + utf8)
    message = "byte 0xe9 at position .* is not UTF-8; save the file as UTF-8"
    check_row(path, line=2, message=message, texts=["onë", "onë"], ids=["0", "2"])
    with pytest.raises(DataError, match="pass encoding='windows-1252' to read another encoding"):
        read_corpus(path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("too,many,fields,here", "4 fields, expected 2 as in the header"),
        ("alone", "1 fields, expected 2"),
        ('"never closed,a', "malformed row"),
        ('"closed" early,a', "malformed row"),
    ],
)
def test_malformed_line_17_of_a_csv(tmp_path, bad, message):
    lines = ["text,labels", *(f"text {i},a" for i in range(2, 17)), bad, "last,b"]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines) + "\n")
    texts = [f"text {i}" for i in range(2, 17)] + ["last"]
    ids = [str(i) for i in range(15)] + ["16"]
    check_row(path, line=17, message=message, texts=texts, ids=ids)


def test_unclosed_quote_that_a_later_one_closes_costs_one_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,labels\n"open,a\nfine,b\n"quoted",c\nlast,d\n')
    corpus = read_corpus(path, skip_bad_rows=True)
    assert corpus.texts() == ["fine", "quoted", "last"]
    assert [problem.split(": ")[0] for problem in corpus.skipped] == [f"{path}:2"]


def test_a_quote_that_runs_on_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("glocal.data.formats.delimited.MAX_RECORD_LINES", 5)
    path = tmp_path / "a.csv"
    path.write_text('text,labels\n"open,a\n' + "fine,b\n" * 20)
    corpus = read_corpus(path, skip_bad_rows=True)
    assert len(corpus) == 20
    assert "runs over 5 lines" in corpus.skipped[0]


def test_csv_header_problems(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,text\nx,y\n")
    with pytest.raises(DataError, match=r"a.csv:1: the header names \['text'\] more than once"):
        read_corpus(path)
    path.write_text("text,labels\n")
    with pytest.raises(DataError, match="no documents in the file"):
        read_corpus(path)
    path.write_text("words,labels\nx,y\n")
    with pytest.raises(DataError, match=r"a.csv:2: no field 'text' \(fields: words, labels\)"):
        read_corpus(path)


def test_parquet_rows(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x", None, "y"], "labels": [["a"], ["b"], None]}), path)
    check_row(path, line=2, message="field 'text' is null", texts=["x", "y"], ids=["0", "2"])
    pq.write_table(pa.table({"other": [1]}), path)
    with pytest.raises(DataError, match=r"none of the columns .*\(columns: other\)"):
        read_corpus(path)


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.95])
def test_truncated_parquet(tmp_path, keep):
    whole = tmp_path / "whole.parquet"
    table = pa.table({"text": [f"text number {i}" for i in range(5000)]})
    pq.write_table(table, whole)
    path = tmp_path / "a.parquet"
    path.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * keep)])
    with pytest.raises(DataError, match=r"a.parquet: the Parquet data is truncated or damaged"):
        read_corpus(path, skip_bad_rows=True)


def test_damaged_parquet_page(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text number {i}" for i in range(5000)]}), path)
    content = bytearray(path.read_bytes())
    content[200:2000] = b"\xff" * 1800
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet"):
        read_corpus(path, skip_bad_rows=True)


def test_truncated_gzip_names_the_line(tmp_path):
    rows = gzip.compress(jsonl(*({"text": f"text {i * 7919}"} for i in range(20_000))).encode())
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(rows[: len(rows) // 2])
    with pytest.raises(DataError, match=r"a.jsonl.gz:\d{4,}: the gzip data is truncated"):
        read_corpus(path, skip_bad_rows=True)
    path.write_bytes(rows[:10])
    with pytest.raises(DataError, match="the gzip data is truncated"):
        read_corpus(path)


def test_empty_file_and_file_of_blank_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"a.jsonl: the file is empty"):
        read_corpus(path, skip_bad_rows=True)
    path.write_bytes(b"\n\n")
    with pytest.raises(DataError, match="no documents in the file"):
        read_corpus(path)
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match=r"the file is empty"):
        read_corpus(path.with_suffix(".jsonl.gz"))


def test_nothing_usable_names_the_first_problem(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl({"text": ""}, {"text": ""}))
    with pytest.raises(DataError, match=r"none of the 2 rows can be used; .*a.jsonl:1: the text"):
        read_corpus(path, skip_bad_rows=True)


def test_paths_that_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "train.jsonl").write_text(jsonl(GOOD))
    with pytest.raises(DataError, match=r"trian.jsonl: no such file; did you mean .*train.jsonl\?"):
        read_corpus(tmp_path / "trian.jsonl")
    with pytest.raises(DataError, match="is a folder; expected a file"):
        read_corpus(tmp_path)
    with pytest.raises(DataError, match="File name too long"):
        read_corpus(tmp_path / ("a" * 300))

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(DataError, match=r"train.jsonl: cannot be read: Permission denied"):
        read_corpus(tmp_path / "train.jsonl")


def test_full_disk_while_spilling(tmp_path, monkeypatch, private_cache):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(*({"text": "x" * 100} for _ in range(9000))))
    monkeypatch.setattr(
        "glocal.data.corpus.CorpusBuilder.__init__.__kwdefaults__", {"spill_bytes": 0}
    )

    class FullDisk:
        def write_batch(self, _batch):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("glocal.data.corpus.pa.ipc.new_file", lambda *_: FullDisk())
    with pytest.raises(DataError, match=r"No space left on device.*set GLOCAL_CACHE"):
        read_corpus(path)
    assert list((private_cache / "corpora").iterdir()) == []


def test_annif_line_without_tab(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one\t<a>\nno tab\ntwo\t<b>\n")
    check_row(path, line=2, message="no tab in the line", texts=["one", "two"], ids=["0", "2"])
