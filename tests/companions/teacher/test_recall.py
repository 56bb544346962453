"""Recall of gold labels inside scopes, against counting by hand."""

import pytest

from glocal.companions.teacher.recall import scope_recall
from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace
from tests.companions.teacher.test_teacher import LABELS, PARENTS, TEXTS, table
from tests.companions.teacher.words import make_teacher

SPACE = LabelSpace.build(Corpus.from_texts(TEXTS, LABELS))
BANDS = Bands.parse("once=1-1,more=2-")


def test_recall_by_k_and_band():
    teacher = make_teacher(TEXTS, LABELS)
    # "cat": one neighbour "cat red" (felines, red), two also "cat blue" (felines, blue)
    dev = Corpus.from_texts(["cat", "owl owl"], [["felines", "blue", "new"], ["birds", "canines"]])
    seen = []
    one, two = scope_recall(
        teacher, dev, SPACE, ks=[1, 2], bands=BANDS, progress=lambda *d: seen.append(d)
    )
    assert (one.k, two.k) == (1, 2)
    assert one.recall == pytest.approx(2 / 5)  # felines, birds
    assert two.recall == pytest.approx(3 / 5)  # and blue
    # once: blue and birds; more often: felines and canines; "new" is in no band
    assert one.bands == pytest.approx({"once": 1 / 2, "more": 1 / 2})
    assert two.bands == pytest.approx({"once": 1, "more": 1 / 2})
    assert one.labels == pytest.approx(3 / 2)
    assert two.labels == pytest.approx(2)
    assert seen == [(2, 2)]
    assert one.to_dict()["recall"] == one.recall


def test_labels_outside_the_space_are_never_found():
    # The parents "carnivores" and "pets" come right after the labels of the space, where the
    # matrix of gold labels has those the model does not know.
    teacher = make_teacher(TEXTS, LABELS, table=table(PARENTS))
    dev = Corpus.from_texts(["cat"], [["felines", "another", "carnivores"]])
    (row,) = scope_recall(teacher, dev, SPACE, ks=[10])
    assert row.recall == pytest.approx(1 / 3)
    assert row.labels == 5


def test_full_scopes_are_counted():
    teacher = make_teacher(TEXTS, LABELS, size=2)
    dev = Corpus.from_texts(["cat", "owl owl"], [["felines"], ["birds"]])
    (row,) = scope_recall(teacher, dev, SPACE, ks=[10])
    assert row.cut == 0.5


def test_texts_without_labels():
    with pytest.raises(DataError, match="no text has labels"):
        scope_recall(make_teacher(TEXTS, LABELS), Corpus.from_texts(["cat"]), SPACE)
