import csv
import json

import pytest

from glocal.lab.ablation import Ablation
from glocal.lab.variant_tables import load_table, resolve
from tests.lab.reports import failed_result, random_result
from tests.lab.small import TABLE, small_splits
from tests.tiny import FAST


@pytest.fixture
def result():
    results = [
        random_result("one", "one expert", 1),
        random_result("two", "two experts", 2, ["D-last", "A-1"]),
    ]
    return Ablation(TABLE, resolve(TABLE, FAST), small_splits(), results)


def test_main_table(result):
    table = result.main()
    assert [row[0] for row in table.rows] == ["one expert", "two experts"]
    assert table.rows[0][1] == result.runs[0].score("P@1")
    assert "Numbers are on test (12 texts" in table.note
    assert "2 epochs" in table.note
    assert "candidates auto" in table.note


def test_the_mean_of_probabilities_has_a_table_and_dots_of_its_own(tmp_path):
    results = [
        random_result("one", "one expert", 1),
        random_result("two", "two experts", 2, ["D-last", "A-1", "mean"]),
    ]
    result = Ablation(TABLE, resolve(TABLE, FAST), small_splits(), results)
    (table,) = [t for t in result.tables() if "mean of the experts" in t.title]
    one, two = table.rows
    assert one[1] == results[0].score("P@1")  # one expert is its own mean
    assert two[1] == results[1].score("P@1", "mean") != results[1].score("P@1")
    result.write(tmp_path)
    assert ">mean</text>" in (tmp_path / "small.svg").read_text(encoding="utf-8")


def test_what_failed_or_was_not_run_is_a_row_without_numbers():
    failed = failed_result("one", "one expert", "no memory")
    result = Ablation(TABLE, resolve(TABLE, FAST), small_splits(), [failed])
    table = result.main()
    assert [row[1:] for row in table.rows] == [(None,) * 6] * 2
    assert "one failed: no memory." in table.note
    assert "Not run yet: two." in table.note
    assert len(result.short_tables()) == 2


def test_bands_are_those_of_the_report(result):
    macro = result.runs[1].report["macro"]["combined"]["5"]
    tables = result.tables()[1:3]
    for group, table in zip(("all_labels", "with_gold"), tables, strict=True):
        row = table.rows[1]
        keys = ("precision", "recall", "f1")
        assert list(row[1:]) == [
            macro[band][group][key] for band in ("few", "medium", "many") for key in keys
        ]
    summary = result.short_tables()[1]
    assert summary.rows[1][1] == macro["few"]["all_labels"]["f1"]
    assert summary.rows[1][-1] == macro["many"]["with_gold"]["f1"]


def test_files(result, tmp_path):
    paths = result.write(tmp_path, plots=False)
    assert [path.name for path in paths] == ["small.md", "small.csv", "small.json"]
    text = (tmp_path / "small.md").read_text(encoding="utf-8")
    assert text.startswith("# A small table\n")
    assert "As published: nowhere" in text
    assert "| one expert | 80.00 | 70.00 | 60.00 |" in text
    rows = list(csv.DictReader((tmp_path / "small.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["variant"], row["part"]) for row in rows] == [
        ("one", "combined"),
        ("two", "D-last"),
        ("two", "A-1"),
        ("two", "combined"),
    ]
    result = result.runs[1]
    assert float(rows[2]["P@3"]) == result.score("P@3", "A-1")
    few = result.report["macro"]["A-1"]["5"]["few"]
    assert float(rows[2]["few macro-F@5"]) == few["all_labels"]["f1"]
    assert float(rows[2]["few macro-F@5 (with gold)"]) == few["with_gold"]["f1"]
    document = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert document["split"] == "test"
    assert document["variants"][0]["published"] == {"combined": [80.0, 70.0, 60.0]}


def test_a_failed_variant_is_in_the_csv(tmp_path):
    results = [
        failed_result("one", "one expert", "x"),
        random_result("two", "two experts", 2, ["D-last", "A-1"]),
    ]
    Ablation(TABLE, resolve(TABLE, FAST), small_splits(), results).write(tmp_path, plots=False)
    rows = list(csv.DictReader((tmp_path / "small.csv").read_text(encoding="utf-8").splitlines()))
    assert (rows[0]["status"], rows[0]["P@1"]) == ("failed", "")


def test_experts_have_rows_of_their_own_where_the_table_says_so(tmp_path):
    table = load_table("glocalxml-table4")
    results = [
        random_result(variant.name, variant.title, seed, ["D-last", "A-1"])
        for seed, variant in enumerate(table.variants)
    ]
    result = Ablation(table, resolve(table, FAST), small_splits(), results)
    assert [row[1] for row in result.main().rows] == ["D-last", "A-1", "combined"] * 2
    paths = result.write(tmp_path)
    assert {path.suffix for path in paths} == {".md", ".csv", ".json", ".png", ".svg"}
    svg = (tmp_path / "glocalxml-table4.svg").read_text(encoding="utf-8")
    assert all(f">{part}</text>" in svg for part in ("D-last", "A-1", "combined"))
