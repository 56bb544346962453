import csv
import json

import pytest

from glocal.lab.band_report import BandComparison
from glocal.vocabulary.bands import Bands
from tests.lab.reports import random_report


@pytest.fixture
def reports():
    return {
        "first": (random_report(1, ["A-1"]), "combined"),
        "second": (random_report(2), "combined"),
    }


def test_scores_side_by_side_with_their_difference(reports):
    every, with_gold, sizes = BandComparison(reports, k=5, source="test.jsonl").tables()
    names = [column.name for column in every.columns]
    assert names == ["model", *(f"{b} {x}" for b in ("few", "medium", "many") for x in "PRF")]
    first, second, difference = every.rows
    few = reports["first"][0].macro[5]["few"]
    assert first[:4] == (
        "first", few.all_labels.precision, few.all_labels.recall, few.all_labels.f1,
    )  # fmt: skip
    assert with_gold.rows[0][1] == few.with_gold.precision
    assert difference[3] == pytest.approx(second[3] - first[3])
    assert sizes.rows[0] == ("first", "few", 3, few.with_gold.n_labels)
    assert "29 texts of test.jsonl" in every.note  # one has no gold


def test_one_series_has_no_difference(reports):
    del reports["second"]
    (row,) = BandComparison(reports, k=5, source="x").tables()[0].rows
    assert row[0] == "first"


def test_a_part_of_a_model(reports):
    parts = {"expert": (reports["first"][0], "A-1")}
    row = BandComparison(parts, k=3, source="x").tables()[0].rows[0]
    assert row[3] == reports["first"][0].experts["A-1"].macro[3]["few"].all_labels.f1


def test_files(reports, tmp_path):
    paths = BandComparison(reports, k=5, source="test.jsonl").write(tmp_path)
    assert len(paths) == 3 + 2 * 4
    rows = list(csv.DictReader((tmp_path / "bands.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 3 * 2
    document = json.loads((tmp_path / "bands.json").read_text(encoding="utf-8"))
    assert document["rows"][0]["f1"] == pytest.approx(float(rows[0]["f1"]))


def test_a_band_without_labels_is_null_in_json(tmp_path):
    bands = Bands.parse("few=1-2,more=3-")
    result = BandComparison({"m": (random_report(bands=bands), "combined")}, k=5, source="x")
    rows = result.to_dict()["rows"]
    assert rows[0]["labels"] == 0
    assert rows[0]["f1"] is None
    assert result.write(tmp_path)
