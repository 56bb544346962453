"""What labels are said to be about."""

from glocal.companions.teacher.known_labels import KnownLabels
from glocal.config import TeacherConfig
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelEntry, LabelTable

TEXTS = ["Purring cats in 2020, the cats!", "the dogs bark at the cats", "the owls fly; owls hoot"]


def describe(labels, entries, words=4, **options):
    corpus = Corpus.from_texts(TEXTS, labels)
    table = LabelTable.from_entries(entries) if entries else None
    space = LabelSpace.build(corpus, table=table, **options)
    known = KnownLabels.find(corpus, space, table, TeacherConfig(words=words, text_words=100))
    return dict(zip(known.ids, known.descriptions, strict=True))


def test_names_and_descriptions_cut_to_the_number_of_words():
    entries = [
        LabelEntry("a", "felines", "cats, lions and others of their kind", parents=("p",)),
        LabelEntry("p", "animals"),
    ]
    assert describe([["a"]] * 3, entries) == {"a": "felines cats, lions and", "p": "animals"}


def test_a_label_without_a_name_is_described_by_its_texts():
    found = describe([["1"], ["2"], ["3"]], [], words=2)
    assert found["1"] == "purring cats"  # cats are met twice, but elsewhere too; 2020 is no word
    assert found["2"] == "bark dogs"
    assert found["3"].split()[0] == "owls"


def test_a_label_without_name_and_texts_is_described_by_its_id():
    entries = [LabelEntry("a", "a"), LabelEntry("nothing", "nothing")]
    found = describe([["a"]] * 3, entries, score_unseen=True)
    assert found["nothing"] == "nothing"
    assert found["a"]


def test_the_empty_corners_of_a_hierarchy(tmp_path):
    corpus = Corpus.from_texts(TEXTS, [["a"]] * 3)
    space = LabelSpace.build(corpus)
    known = KnownLabels.find(corpus, space, None, TeacherConfig(words=4, text_words=9))
    assert known.parent_matrix is None
    known.save(tmp_path / "labels.parquet")
    assert KnownLabels.load(tmp_path / "labels.parquet") == known
