import numpy as np
import pyarrow as pa
import pytest

from glocal.data.corpus import Corpus, CorpusBuilder, Document
from glocal.errors import DataError


def sample():
    return Corpus.from_texts(["one", "zwei ä", "", "vier"], [["a", "b"], [], ["a"], [3, "a", "a"]])


def test_from_texts():
    corpus = sample()
    assert len(corpus) == 4
    assert corpus.ids == ["0", "1", "2", "3"]
    assert corpus.texts() == ["one", "zwei ä", "", "vier"]
    assert corpus.labels() == [["a", "b"], [], ["a"], ["3", "a"]]
    assert corpus.skipped == []


def test_slices_follow_python():
    corpus = sample()
    assert corpus.texts(1, 3) == ["zwei ä", ""]
    assert corpus.texts(-1) == ["vier"]
    assert corpus.texts(3, 1) == []
    assert corpus.labels(3, 99) == [["3", "a"]]
    assert list(corpus.iter_texts(3)) == [["one", "zwei ä", ""], ["vier"]]


def test_documents_and_take():
    corpus = sample().take([3, 0])
    assert list(corpus.documents()) == [
        Document("3", "vier", ("3", "a"), 1),
        Document("0", "one", ("a", "b"), 2),
    ]


def test_take_across_chunks_and_spilled(private_cache):
    builder = CorpusBuilder(source="x", spill_bytes=0)
    for i in range(20_000):
        builder.add(Document(str(i), f"text {i}", (f"l{i % 7}",)))
    corpus = builder.finish()
    assert corpus.table.column("text").num_chunks > 1
    picked = corpus.take(np.array([19_999, 0, 8192, 8191]))
    assert picked.texts() == ["text 19999", "text 0", "text 8192", "text 8191"]
    assert picked.labels() == [["l0"], ["l0"], ["l2"], ["l1"]]


def test_spilling_gives_the_same_corpus_and_leaves_no_file(private_cache):
    documents = [Document(str(i), f"text {i}" * 50, ("a",)) for i in range(9000)]
    kept, spilled = CorpusBuilder(source="x"), CorpusBuilder(source="x", spill_bytes=1000)
    for document in documents:
        kept.add(document)
        spilled.add(document)
    in_memory, mapped = kept.finish(), spilled.finish()
    assert in_memory.table.equals(mapped.table)
    assert in_memory.fingerprint() == mapped.fingerprint()
    assert (private_cache / "corpora").is_dir()
    assert list((private_cache / "corpora").iterdir()) == []


def test_closing_a_builder_removes_its_file(private_cache):
    builder = CorpusBuilder(source="x", spill_bytes=0)
    for i in range(9000):
        builder.add(Document(str(i), "text"))
    assert len(list((private_cache / "corpora").iterdir())) == 1
    builder.close()
    assert list((private_cache / "corpora").iterdir()) == []


def test_fingerprint_depends_on_texts_and_their_bounds_only():
    base = Corpus.from_texts(["ab", "c"], [["x"], ["y"]])
    chunked = Corpus(pa.concat_tables([base.table.slice(0, 1), base.table.slice(1)]))
    assert base.fingerprint() == chunked.fingerprint()
    assert base.fingerprint() == Corpus.from_texts(["ab", "c"], ids=["p", "q"]).fingerprint()
    assert base.fingerprint() != Corpus.from_texts(["a", "bc"]).fingerprint()
    assert base.fingerprint() != Corpus.from_texts(["ab", "c", ""]).fingerprint()
    assert base.take([1]).fingerprint() == Corpus.from_texts(["c"]).fingerprint()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": ["a", 3]}, "x:2: a text is a int, expected a string"),
        ({"texts": ["a"], "labels": [["b"], ["c"]]}, "1 texts but 2 label lists"),
        ({"texts": ["a"], "labels": ["law"]}, "expected a list of label ids"),
        ({"texts": ["a"], "labels": [[" "]]}, "a label is blank"),
        ({"texts": ["a", "b"], "ids": ["1", 1]}, "x:2: the id '1' occurs twice"),
        ({"texts": ["a", "b\ud800"]}, "x:2: .*not valid Unicode"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(DataError, match=message):
        Corpus.from_texts(**arguments, source="x")


def test_table_without_the_columns_is_refused():
    with pytest.raises(DataError, match="'labels'"):
        Corpus(pa.table({"id": ["1"], "text": ["a"]}))
