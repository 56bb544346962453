import csv
import json
from statistics import mean, stdev

import pytest

from glocal.config import load_recipe
from glocal.errors import ConfigError
from glocal.lab.ablation import Ablation
from glocal.lab.seeds import check_seeds, over_seeds, parse_seeds
from glocal.lab.variant_tables import Variant, VariantTable, resolve
from tests.lab.reports import failed_result, random_result
from tests.lab.small import TABLE, small_splits
from tests.tiny import FAST


def seeded(*, missing=(), failed=(), without_mean=()):
    table = over_seeds(TABLE, [0, 4])
    runs = []
    for seed, variant in enumerate(table.variants):
        experts = ["D-last", "A-1", "mean"] if variant.name.startswith("two") else []
        experts = experts[:2] if variant.name in without_mean else experts
        if variant.name in failed:
            runs.append(failed_result(variant.name, "", "x"))
        elif variant.name not in missing:
            runs.append(random_result(variant.name, variant.title, seed, experts))
    return Ablation(TABLE, resolve(table, FAST), small_splits(), runs, seeds=[0, 4]), runs


def test_every_variant_once_for_each_seed():
    table = over_seeds(TABLE, [0, 4])
    assert [v.name for v in table.variants] == [
        "one-seed-0",
        "one-seed-4",
        "two-seed-0",
        "two-seed-4",
    ]
    recipes = resolve(table, FAST)
    assert [recipe.train.seed for recipe in recipes.values()] == [0, 4, 0, 4]
    assert recipes["two-seed-4"].experts == ("D-last", "A-1")
    with pytest.raises(ConfigError, match="it is what they differ in"):
        resolve(table, [*FAST, "train.seed=3"])


def test_seeds_are_different_whole_numbers():
    assert parse_seeds("0,1, 12") == [0, 1, 12]
    with pytest.raises(ConfigError, match="expected whole numbers, such as 0,1,2"):
        parse_seeds("0,x")
    with pytest.raises(ConfigError, match="a seed is given twice"):
        parse_seeds("1,1")


def test_a_table_with_seeds_of_its_own():
    table = VariantTable("t", "", "me-xml", (Variant("a", "a", {"train.seed": 1}),))
    with pytest.raises(ConfigError, match=r"'a' of 't' sets train\.seed itself"):
        over_seeds(table, [0])


def test_means_and_spread():
    result, runs = seeded()
    main, spread, few, *_ = result.tables()
    values = [run.score("P@1") for run in runs[2:]]
    assert [row[0] for row in main.rows] == ["one expert", "two experts"]
    assert main.rows[1][1] == pytest.approx(mean(values))
    assert spread.rows[1][1] == pytest.approx(stdev(values))
    assert spread.rows[1][-1] == 2
    macro = [run.report["macro"]["combined"]["5"]["few"]["all_labels"]["f1"] for run in runs[2:]]
    assert few.rows[1][3] == pytest.approx(mean(macro))
    assert "Means over seeds 0, 4." in main.note
    assert "seed 0" not in main.note


def test_unfinished_seeds_are_named_and_left_out_of_the_means():
    result, runs = seeded(missing=["one-seed-4", "two-seed-0"], failed=["two-seed-4"])
    main, *others = result.tables()
    assert main.rows[0][1] == runs[0].score("P@1")
    assert main.rows[1][1] is None
    assert "two-seed-4 failed: x. Not run yet: one-seed-4, two-seed-0." in main.note
    assert not any("Standard deviation" in table.title for table in others)


@pytest.mark.parametrize("older", ["two-seed-0", "two-seed-4"])
def test_a_part_that_not_all_seeds_have_is_left_out(older):
    result, runs = seeded(without_mean=[older])
    assert result.done["two"].parts == ["D-last", "A-1"]
    assert result.done["two"].score("P@5") == pytest.approx(
        mean(run.score("P@5") for run in runs[2:])
    )


def test_seeds_of_models_with_members_in_common():
    alone, three, opened = (load_recipe(name) for name in ("me-xml", "best", "auto"))
    check_seeds([alone], [0, 1])
    check_seeds([three], [6, 0, 3])
    for recipe in (three, opened):
        with pytest.raises(ConfigError, match=r"must lie 3 apart, such as 0,3$"):
            check_seeds([alone, recipe], [0, 2])


def test_files_have_every_run(tmp_path):
    result, runs = seeded()
    result.write(tmp_path)
    text = (tmp_path / "small-seeds.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["variant"] for row in rows if row["part"] == "combined"] == [r.name for r in runs]
    document = json.loads((tmp_path / "small-seeds.json").read_text(encoding="utf-8"))
    assert document["seeds"] == [0, 4]
    assert [run["name"] for run in document["runs"]] == [run.name for run in runs]
    assert [variant["name"] for variant in document["variants"]] == ["one", "two"]
