import json

import pytest

from glocal.data.corpus import Corpus
from glocal.data.inspect import inspect_corpora
from glocal.errors import DataError
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_table import LabelTable


@pytest.fixture
def report():
    train = Corpus.from_texts(
        ["one two", "One two", "rule 1", "rule 2", "one two", "z"],
        [["a", "b"], ["a"], ["a"], [], ["a", "c"], ["a"]],
        source="train",
    )
    test = Corpus.from_texts(["rule 9", "z", "fresh"], [["a", "x"], ["x", "y"], []], source="test")
    return inspect_corpora([train, test], bands=Bands.parse("rare=1-2,common=3-"))


def test_counts_of_a_split(report):
    train = report.splits[0]
    assert (train.source, train.n_documents, train.n_without_labels) == ("train", 6, 1)
    assert (train.n_labels, train.n_labels_once) == (3, 2)
    assert (train.n_duplicates, train.n_near_duplicates) == (1, 3)
    assert train.bands == {"rare": 2, "common": 1}
    assert train.curve == [(1, 5), (2, 1), (3, 1)]


def test_distributions(report):
    train = report.splits[0]
    assert (train.words.min, train.words.max, train.words.mean) == (1, 2, 1.83)
    assert train.words.percentiles[50] == 2
    assert (train.characters.min, train.characters.max) == (1, 7)
    assert train.labels_per_document.mean == 1.17


def test_overlap_with_train(report):
    (overlap,) = report.overlaps
    assert (overlap.train, overlap.other) == ("train", "test")
    assert (overlap.n_duplicates, overlap.n_near_duplicates) == (1, 2)
    assert (overlap.n_unseen_labels, overlap.n_unseen_uses) == (2, 3)


def test_report_is_json(report):
    assert json.loads(json.dumps(report.to_dict()))["overlaps"][0]["n_duplicates"] == 1


def test_every_problem_is_collected(tmp_path):
    rows = [{"text": "x", "labels": ["a"]}, {"text": ""}, {"no": 1}, {"text": "y", "labels": 3}]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    report = inspect_corpora([path])
    assert [problem.split(": ")[0] for problem in report.problems] == [
        f"{path}:{line}" for line in (2, 3, 4)
    ]
    assert report.splits[0].n_documents == 1


def test_a_corpus_without_labels():
    report = inspect_corpora([Corpus.from_texts(["a", "b"])], bands=Bands())
    assert report.splits[0].n_labels == 0
    assert report.splits[0].curve == []


def test_curve_of_many_labels_is_short_and_falls():
    corpus = Corpus.from_texts(
        [f"t{i}" for i in range(500)], [[f"l{j}" for j in range(0, 500, i + 1)] for i in range(500)]
    )
    curve = inspect_corpora([corpus]).splits[0].curve
    assert len(curve) <= 60
    assert curve[0] == (1, 500)
    assert [count for _, count in curve] == sorted((c for _, c in curve), reverse=True)


def test_an_unreadable_file_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(DataError, match="empty"):
        inspect_corpora([tmp_path / "a.jsonl"])


def test_label_table_is_checked():
    corpus = Corpus.from_texts(["x"], [["a", "new"]], source="train")
    table = LabelTable(["a"], ["A"], parents=[("gone",)], source="labels.jsonl")
    report = inspect_corpora([corpus], label_table=table)
    assert report.problems == [
        "labels.jsonl: the parent 'gone' of label 'a' is not in the table",
        "train: the label 'new' is not in the label table labels.jsonl",
    ]


def warnings_of(tmp_path, content, **options):
    path = tmp_path / "a.csv"
    path.write_text(content)
    report = inspect_corpora([path], **options)
    assert report.to_dict()["warnings"] == [warning.message for warning in report.warnings]
    return [warning.message.removeprefix(f"{path}: ") for warning in report.warnings]


def test_labels_with_a_separator_inside_are_pointed_out(tmp_path):
    content = "text,labels\none,a|b\ntwo,b|c\nthree,a|b\n"
    assert warnings_of(tmp_path, content) == []
    (warning,) = warnings_of(tmp_path, content, label_separator=";")
    assert warning.startswith("2 of 2 labels contain '|' ('a|b', 'b|c')")


def test_commas_in_names_are_no_separators(tmp_path):
    content = 'text,labels\none,"Tax, direct"\ntwo,"Tax, direct"\nthree,Art\nfour,Art\n'
    assert warnings_of(tmp_path, content) == []
    content = content.replace("Tax, direct", "tax,law")
    assert warnings_of(tmp_path, content) == []
    (warning,) = warnings_of(tmp_path, content, label_separator=";")
    assert "1 of 2 labels contain ','" in warning


def test_labels_that_never_repeat_are_pointed_out(tmp_path):
    (warning,) = warnings_of(tmp_path, "text,labels\none,red\ntwo,blue\n")
    assert warning.startswith("no label occurs in two documents ('red', 'blue')")


@pytest.mark.parametrize(
    ("labels", "hinted"),
    [
        (["100149", "2193"], True),
        (["http://example.org/1", "http://example.org/2"], True),
        (["E11.9", "I10"], True),
        (["gnd:4012345-6", "Q42"], True),
        (["law", "tax"], False),
        (["level 2", "stage 3"], False),
    ],
)
def test_a_missing_label_table_is_pointed_out(labels, hinted):
    corpus = Corpus.from_texts(["one", "two"], [labels, labels])
    found = [warning.message for warning in inspect_corpora([corpus]).warnings]
    assert [True for message in found if "labels look like ids" in message] == [True] * hinted
    table = LabelTable(labels, labels)
    assert inspect_corpora([corpus], label_table=table).warnings == []
