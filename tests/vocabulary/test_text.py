import pytest

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from glocal.vocabulary.label_text import all_names, label_texts, telling_name

TABLE = LabelTable(
    ["1", "2", "3", "4"],
    ["pear", "pome fruit", "quince", "4"],
    ["a sweet fruit", "", "", ""],
    [("2",), (), ("2", "9"), ("2",)],
    [("pyrus", "07"), (), (), ()],
)


def space(*, score_unseen=False):
    corpus = Corpus.from_texts(["x", "y"], [["1", "4"], ["3"]])
    return LabelSpace.build(corpus, table=TABLE, score_unseen=score_unseen)


def test_a_text_is_name_description_and_the_names_above():
    texts = dict(zip(["1", "3", "4"], label_texts(space(), TABLE), strict=True))
    assert texts == {"1": "pear. a sweet fruit (pome fruit)", "3": "quince (pome fruit)", "4": ""}


def test_parents_outside_the_space_are_named_by_the_table_alone():
    assert label_texts(space())[0] == "pear. a sweet fruit"
    assert label_texts(space(score_unseen=True))[0] == "pear. a sweet fruit (pome fruit)"


def test_names_without_a_letter_tell_nothing():
    assert [telling_name(name) for name in ("12", "A1", "_", "Ä", "–")] == ["", "A1", "", "Ä", ""]


def test_other_names_follow_the_name(tmp_path):
    labels = space()
    assert all_names(labels) == [["pear", "pyrus"], ["quince"], []]
    labels.save(tmp_path / "labels.parquet")
    assert all_names(LabelSpace.load(tmp_path / "labels.parquet")) == all_names(labels)


def test_no_name_at_all_says_what_to_do():
    labels = LabelSpace.build(Corpus.from_texts(["x"], [["17", "18"]]))
    with pytest.raises(ConfigError, match=r"none of the 2 labels has one .*'17'.*label_table=…"):
        label_texts(labels)
