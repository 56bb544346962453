import gzip

import numpy as np
import pytest

from glocal.data.formats.xmc import read_sparse
from glocal.data.readers import read_corpus
from glocal.errors import DataError

SPARSE = "3 5 4\n0,2 1:0.5 4:2\n 0:1\n3 2:1e-1\n"


def test_text_layout_takes_spaces_and_commas(tmp_path):
    (tmp_path / "train_raw_texts.txt").write_text("first text\nsecond\n")
    (tmp_path / "train_labels.txt").write_text("a b,c\n17\n")
    corpus = read_corpus(tmp_path / "train_raw_texts.txt")
    assert corpus.texts() == ["first text", "second"]
    assert corpus.labels() == [["a", "b", "c"], ["17"]]


def test_text_layout_with_named_labels_file(tmp_path):
    (tmp_path / "x.txt").write_text("first text\n")
    (tmp_path / "y.txt").write_text("a\n")
    assert read_corpus(tmp_path / "x.txt", labels_path=tmp_path / "y.txt").labels() == [["a"]]
    with pytest.raises(DataError, match="no file of labels beside it"):
        read_corpus(tmp_path / "x.txt", format="xmc-text")


@pytest.mark.parametrize(
    ("texts", "labels", "short"),
    [("a\nb\n", "1\n", "train_labels.txt"), ("a\n", "1\n2\n", "train_texts.txt")],
)
def test_text_layout_files_must_match(tmp_path, texts, labels, short):
    (tmp_path / "train_texts.txt").write_text(texts)
    (tmp_path / "train_labels.txt").write_text(labels)
    with pytest.raises(DataError, match=f"{short}: ends after 1 documents, but .* goes on"):
        read_corpus(tmp_path / "train_texts.txt")


def test_undecodable_text_does_not_shift_the_labels(tmp_path):
    (tmp_path / "train_texts.txt").write_bytes("onë\n".encode() + b"caf\xe9\nthree\n")
    (tmp_path / "train_labels.txt").write_text("1\n2\n3\n")
    corpus = read_corpus(tmp_path / "train_texts.txt", skip_bad_rows=True)
    assert corpus.texts() == ["onë", "three"]
    assert corpus.labels() == [["1"], ["3"]]
    assert corpus.ids == ["0", "2"]
    assert "train_texts.txt:2: byte 0xe9" in corpus.skipped[0]


@pytest.mark.parametrize("zipped", [False, True])
def test_sparse_matrices(tmp_path, zipped):
    path = tmp_path / "train.txt"
    path.write_bytes(gzip.compress(SPARSE.encode()) if zipped else SPARSE.encode())
    sparse = read_sparse(path)
    expected = np.zeros((3, 5), dtype=np.float32)
    expected[0, [1, 4]], expected[1, 0], expected[2, 2] = [0.5, 2], 1, 0.1
    np.testing.assert_array_equal(sparse.features.toarray(), expected)
    np.testing.assert_array_equal(
        sparse.labels.toarray(), [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    )


def test_sparse_matrix_without_labels(tmp_path):
    (tmp_path / "x.txt").write_text("2 3\n0:1 2:1\n\n")
    sparse = read_sparse(tmp_path / "x.txt")
    assert sparse.labels is None
    np.testing.assert_array_equal(sparse.features.toarray(), [[1, 0, 1], [0, 0, 0]])


def test_sparse_labels_with_texts(tmp_path):
    (tmp_path / "train.txt").write_text(SPARSE)
    with pytest.raises(DataError, match=r"no texts; name the file of its texts.*texts_path"):
        read_corpus(tmp_path / "train.txt")
    (tmp_path / "words.txt").write_text("one\ntwo\nthree\n")
    corpus = read_corpus(tmp_path / "train.txt", texts_path=tmp_path / "words.txt")
    assert corpus.texts() == ["one", "two", "three"]
    assert corpus.labels() == [["0", "2"], [], ["3"]]
    (tmp_path / "words.txt").rename(tmp_path / "train_texts.txt")
    assert read_corpus(tmp_path / "train.txt").labels() == corpus.labels()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2\n0 5:1\n", ":2: malformed line .*'0' is not a pair"),
        ("1 5 4\n9 1:1\n", ":2: malformed line .*number 9 is not in 0 to 3"),
        ("1 5 4\n0 5:1\n", ":2: malformed line .*number 5 is not in 0 to 4"),
        ("1 5 4\n0 1:x\n", ":2: malformed line"),
        ("1 5 4\nx 1:1\n", ":2: malformed line"),
        ("2 5 4\n0 1:1\n", "says 2 documents, the file has 1; it may be truncated"),
        ("some text\n", ":1: the first line is 'some text'"),
    ],
)
def test_bad_sparse_file(tmp_path, content, message):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(DataError, match=message):
        read_sparse(tmp_path / "x.txt")
