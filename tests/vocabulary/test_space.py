import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

TABLE = LabelTable(
    ["b", "z", "a"], ["Bee", "Zed", "Ay"], ["buzzes", "", ""], [("z",), (), ("z", "q")]
)


def corpus_of(*label_lists):
    return Corpus.from_texts([f"t{i}" for i in range(len(label_lists))], label_lists, source="x")


def test_build_sorts_and_counts():
    space = LabelSpace.build(corpus_of(["b", "a"], ["b"], [], ["c"]))
    assert space.ids == ["a", "b", "c"]
    assert space.names == ["a", "b", "c"]
    assert space.counts.tolist() == [1, 2, 1]
    assert space.counts.dtype == np.int64
    assert space.n_documents == 4
    assert space.index == {"a": 0, "b": 1, "c": 2}
    assert space.parents == [(), (), ()]


def test_table_gives_names_but_no_labels():
    space = LabelSpace.build(corpus_of(["b", "c"]), table=TABLE)
    assert space.ids == ["b", "c"]
    assert space.names == ["Bee", "c"]
    assert space.descriptions == ["buzzes", ""]
    assert space.parents == [("z",), ()]


def test_score_unseen_takes_in_the_table():
    space = LabelSpace.build(
        corpus_of(["b", "c"], ["b", "a"]), table=TABLE, min_count=2, score_unseen=True
    )
    assert space.ids == ["a", "b", "z"]
    assert space.counts.tolist() == [1, 2, 0]
    assert space.names == ["Ay", "Bee", "Zed"]


def test_min_count():
    space = LabelSpace.build(corpus_of(["b", "a"], ["b"]), min_count=2)
    assert space.ids == ["b"]


def test_nothing_left_says_why():
    with pytest.raises(DataError, match="x: none of the 2 labels has at least 5 training texts"):
        LabelSpace.build(corpus_of(["b", "a"]), min_count=5)
    with pytest.raises(DataError, match="x: no document has labels"):
        LabelSpace.build(corpus_of([], []))


def test_encode_gives_unseen_labels_columns_after_the_last():
    space = LabelSpace.build(corpus_of(["b"], ["a"]))
    matrix = space.encode(corpus_of(["zz", "b"], [], ["c", "a", "b"]))
    assert matrix.shape == (3, 4)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix.toarray(), [[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]])


def test_encoding_training_data_adds_no_columns():
    corpus = corpus_of(["b", "a"], ["c"])
    assert LabelSpace.build(corpus).encode(corpus).shape == (2, 3)
    assert LabelSpace.build(corpus).encode(corpus_of([], [])).shape == (2, 3)


@settings(max_examples=80, deadline=None)
@given(
    train=st.lists(st.lists(st.text(max_size=3).filter(str.strip), max_size=4), min_size=1),
    other=st.lists(st.lists(st.text(max_size=3).filter(str.strip), max_size=4), min_size=1),
)
def test_agrees_with_plain_python(train, other):
    clean = [[label for label in labels if label.isprintable()] for labels in train]
    if not any(clean):
        return
    space = LabelSpace.build(corpus_of(*clean))
    assert space.ids == sorted({label for labels in clean for label in labels})
    assert space.counts.tolist() == [sum(id_ in labels for labels in clean) for id_ in space.ids]
    targets = [[label for label in labels if label.isprintable()] for labels in other]
    matrix = space.encode(corpus_of(*targets))
    unseen = sorted({label for labels in targets for label in labels} - set(space.ids))
    columns = space.ids + unseen
    assert matrix.shape == (len(targets), len(columns))
    assert matrix.has_canonical_format
    for row, labels in enumerate(targets):
        indices = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        assert [columns[i] for i in indices] == sorted(set(labels), key=columns.index)


def test_save_and_load(tmp_path):
    space = LabelSpace.build(corpus_of(["b", "c"], ["b"]), table=TABLE, score_unseen=True)
    space.save(tmp_path / "labels.parquet")
    loaded = LabelSpace.load(tmp_path / "labels.parquet")
    assert (loaded.ids, loaded.names, loaded.descriptions, loaded.parents) == (
        space.ids,
        space.names,
        space.descriptions,
        space.parents,
    )
    np.testing.assert_array_equal(loaded.counts, space.counts)
    assert loaded.n_documents == 2
    assert [p.name for p in tmp_path.iterdir()] == ["labels.parquet"]


def test_load_refuses_other_files(tmp_path):
    with pytest.raises(DataError, match="no such file of labels"):
        LabelSpace.load(tmp_path / "none.parquet")
    (tmp_path / "labels.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(DataError, match="not a readable file of labels"):
        LabelSpace.load(tmp_path / "labels.parquet")


def test_other_names_and_notations_are_stored(tmp_path):
    corpus = Corpus.from_texts(["one", "two"], [["a"], ["b"]])
    table = LabelTable(["a"], ["A"], alt_names=[("Aleph",)], notations=["1.1"])
    space = LabelSpace.build(corpus, table=table)
    space.save(tmp_path / "labels.parquet")
    again = LabelSpace.load(tmp_path / "labels.parquet")
    assert (again.alt_names, again.notations) == ([("Aleph",), ()], ["1.1", ""])
