"""Labels of texts that are given by name."""

import pytest

from glocal.data.corpus import Corpus
from glocal.vocabulary.label_names import with_label_ids
from glocal.vocabulary.label_table import LabelTable

TABLE = LabelTable(["c1", "c2", "c3", "c4"], ["Fish", "Birds", "Law", "law"])


@pytest.mark.parametrize(
    ("given", "expected", "replaced"),
    [
        (["c1", "c2"], ["c1", "c2"], []),
        (["Fish"], ["c1"], ["Fish"]),
        (["birds", "Birds"], ["c2"], ["birds", "Birds"]),  # one label, once
        (["Fish", "c1", "other"], ["c1", "other"], ["Fish"]),
        (["Law", "law"], ["c3", "c4"], ["Law", "law"]),  # exact names come first
        (["LAW"], ["LAW"], []),  # two labels have it
        ([], [], []),
    ],
)
def test_names_become_ids(given, expected, replaced):
    corpus = Corpus.from_texts(["a text", "another"], [given, []])
    found, names = with_label_ids(corpus, TABLE)
    assert found.labels() == [expected, []]
    assert sorted(names) == sorted(replaced)
    assert (found.texts(), found.ids, found.source) == (corpus.texts(), corpus.ids, corpus.source)


def test_name_of_two_labels_stays():
    table = LabelTable(["a", "b"], ["same", "same"])
    found, names = with_label_ids(Corpus.from_texts(["t"], [["same"]]), table)
    assert (found.labels(), names) == ([["same"]], [])
