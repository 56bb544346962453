import io
import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from glocal.data.corpus import Document
from glocal.errors import ConfigError
from glocal.predict.bulk import predict_file, predict_rows, prediction_rows
from glocal.predict.tag_files import open_writer
from glocal.ranking.decision import Decision
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.label_space import LabelSpace

LABELS = LabelSpace(["a", "b", "c"], ["A", "B", "C"], [""] * 3, [()] * 3, np.ones(3, np.int64), 3)


class CountingPredictor:
    """Gives each text the label of its length, and remembers what it was asked."""

    def __init__(self):
        self.labels, self.chunks, self.options = LABELS, [], []
        self.decision = Decision(threshold=0.5)

    def predict(self, texts, *, k, **options):
        self.chunks.append(len(texts))
        self.options.append(options)
        first = np.array([len(text) % 3 for text in texts])
        indices = (first[:, None] + np.arange(k)) % 3
        scores = np.tile(np.linspace(0.9, 0.1, k, dtype=np.float32), (len(texts), 1))
        return Predictions(indices.astype(np.int64), scores, self.labels)


def documents(n):
    return (Document(str(i), "x" * i) for i in range(n))


def test_order_and_labels():
    rows = list(predict_rows(CountingPredictor(), documents(7), k=2, chunk_size=3))
    assert [row["id"] for row in rows] == [str(i) for i in range(7)]
    assert [row["labels"][0]["id"] for row in rows] == ["a", "b", "c", "a", "b", "c", "a"]
    assert rows[1]["labels"][0] == {"id": "b", "name": "B", "score": pytest.approx(0.9)}


def test_chunks_and_progress():
    predictor, seen = CountingPredictor(), []
    list(
        predict_rows(predictor, documents(7), chunk_size=3, k=1, progress=lambda *a: seen.append(a))
    )
    assert predictor.chunks == [3, 3, 1]
    assert seen == [(3, None), (6, None), (7, None)]


@pytest.mark.parametrize(("size", "written"), [(1, [1, 1, 1]), (2, [2, 1])])
def test_a_file_is_written_chunk_by_chunk(tmp_path, size, written):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "{"x" * i}"}}\n' for i in range(1, 4)))
    chunks = []
    predict_file(
        CountingPredictor(), path, lambda rows: chunks.append(len(list(rows))), k=1, chunk_size=size
    )
    assert chunks == written


def test_documents_are_read_only_as_needed():
    read = []

    def stream():
        for document in documents(100):
            read.append(document.id)
            yield document

    rows = predict_rows(CountingPredictor(), stream(), chunk_size=5, k=1)
    next(rows)
    assert len(read) == 5


def test_lists_are_passed_on():
    predictor = CountingPredictor()
    list(predict_rows(predictor, documents(1), k=1, only=["a"], exclude=["b"]))
    assert predictor.options == [{"only": ["a"], "exclude": ["b"]}]


def test_threshold_names_and_empty_slots():
    scores = np.array([[0.75, 0.25, -np.inf]], dtype=np.float32)
    found = Predictions(np.array([[2, 0, -1]]), scores, LABELS)
    (row,) = prediction_rows(["x"], found, names=False)
    assert row == {"id": "x", "labels": [{"id": "c", "score": 0.75}, {"id": "a", "score": 0.25}]}
    (row,) = prediction_rows(["x"], found)
    assert [label["name"] for label in row["labels"]] == ["C", "A"]


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, ["a", "b"]),
        ({"k": 1}, ["a"]),
        ({"k": 3}, ["a", "b", "c"]),
        ({"threshold": 0.6}, ["a"]),
        ({"threshold": 0.95}, []),
        ({"k": 2, "threshold": 0.1}, ["a", "b"]),
        ({"k": 3, "threshold": 0.6}, ["a"]),
    ],
)
def test_k_threshold_and_the_decision_of_the_model(options, labels):
    (row,) = predict_rows(CountingPredictor(), [Document("x", "")], **options)
    assert [label["id"] for label in row["labels"]] == labels


def test_memory_does_not_grow_with_the_documents(tmp_path):
    def peak(n):
        tracemalloc.start()
        with open_writer(tmp_path / "tags.jsonl") as write:
            write(predict_rows(CountingPredictor(), documents_of_one_size(n), k=2, chunk_size=64))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    def documents_of_one_size(n):
        return (Document(str(i), "x" * 100) for i in range(n))

    peak(64)  # what is loaded on first use is not counted
    assert peak(64 * 40) < 2 * peak(64 * 4)


def test_stdout_is_utf8_whatever_the_locale(monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=buffer))
    with open_writer(None) as write:
        write([{"id": "é", "labels": []}])
    assert json.loads(buffer.getvalue().decode("utf-8")) == {"id": "é", "labels": []}


def test_parquet_in_several_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("glocal.predict.tag_files.PARQUET_ROWS", 2)
    rows = [{"id": str(i), "labels": [{"id": "a", "score": 0.5}] * (i % 3)} for i in range(5)]
    with open_writer(tmp_path / "tags.parquet", names=False) as write:
        write(rows)
    expected = [{**row, "error": None} for row in rows]
    assert pq.read_table(tmp_path / "tags.parquet").to_pylist() == expected
    assert pq.ParquetFile(tmp_path / "tags.parquet").num_row_groups == 3


@pytest.mark.parametrize("name", ["tags.jsonl", "tags.jsonl.gz", "tags.parquet"])
def test_failure_leaves_nothing_behind(tmp_path, name):
    def failing():
        yield {"id": "1", "labels": []}
        raise RuntimeError("the model broke")

    with pytest.raises(RuntimeError), open_writer(tmp_path / name) as write:
        write(failing())
    assert list(tmp_path.iterdir()) == []


def test_unknown_ending_is_refused_before_any_work(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"tags\.txt.*jsonl"),
        open_writer(tmp_path / "tags.txt"),
    ):
        pytest.fail("the writer opened")
