import json
import sys

import pytest

from tests.cli.conftest import TINY, write_jsonl

TABLE = """
title = "Two variants"
recipe = "me-xml"
parts = true
[settings]
candidates.mode = "full"
[[variants]]
name = "one"
title = "one expert"
settings = { experts = ["D-last"] }
[[variants]]
name = "two"
title = "two experts"
settings = { experts = ["D-last", "A-1"] }
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pair.toml"
    path.write_text(TABLE, encoding="utf-8")
    return path


@pytest.fixture
def ablate(run, files, tmp_path):
    def call(table, *options, test=True):
        splits = ["--dev", files.dev, *(["--test", files.test] if test else [])]
        out = ["--out", tmp_path / "out"]
        return run("ablate", table, files.train, *splits, *out, *TINY, *options)

    return call


def test_trains_then_skips_and_writes_everything(ablate, table, tmp_path):
    result = ablate(table)
    assert result.exit_code == 0, result.output
    for words in ("Two variants (test)", "one expert", "A-1", "P@5", "24 texts of", "2 epochs"):
        assert words in result.stdout
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir() if path.is_file()}
    assert names == {
        *(f"pair.{end}" for end in ("md", "csv", "json", "png", "svg")),
        "pair-dark.png",
        "pair-dark.svg",
    }
    before = {p: p.stat().st_mtime_ns for p in (out / "runs").glob("*/model/*") if p.is_file()}
    again = ablate(table, "--json")
    assert again.exit_code == 0
    assert "done before" in again.stderr
    assert before == {p: p.stat().st_mtime_ns for p in before}
    document = json.loads(again.stdout)
    assert [variant["status"] for variant in document["variants"]] == ["done", "done"]
    assert document == json.loads((out / "pair.json").read_text(encoding="utf-8"))


def test_other_settings_name_the_option_that_starts_from_scratch(ablate, table):
    arguments = ["--only", "one", "--no-plots", "-s", "train.epochs=1"]
    assert ablate(table, *arguments).exit_code == 0
    result = ablate(table, *arguments, "-s", "train.epochs=2")
    assert result.exit_code == 1
    assert "was trained with train.epochs=1 (now 2)" in result.stderr
    assert "add --overwrite to start from scratch" in result.stderr


def test_missing_matplotlib_names_the_option_without_plots(ablate, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = ablate(table)
    assert result.exit_code == 1
    assert "add --no-plots to continue without them" in result.stderr


def test_only_one_variant_on_dev_without_plots(ablate, table, tmp_path):
    result = ablate(table, "--only", "one", "--no-plots", test=False)
    assert result.exit_code == 0, result.output
    assert "(dev)" in result.stdout
    assert "Not run yet: two." in result.stdout.replace("\n", " ").replace("  ", " ")
    assert not list((tmp_path / "out").glob("*.png"))


def test_seeds(ablate, table, tmp_path):
    result = ablate(table, "--only", "one", "--seeds", "0,1", "--no-plots")
    assert result.exit_code == 0, result.output
    assert "Means over seeds 0, 1." in result.stdout.replace("\n", " ").replace("  ", " ")
    models = {path.name for path in (tmp_path / "out" / "runs").iterdir()}
    assert models >= {"one-seed-0", "one-seed-1"}
    assert "two-seed-0" not in models
    assert "Standard deviation over the seeds" in (tmp_path / "out" / "pair-seeds.md").read_text()


def test_results_of_another_study_are_reused(ablate, run, table, files, tmp_path):
    assert ablate(table, "--only", "one", "--no-plots").exit_code == 0
    splits = ["--dev", files.dev, "--test", files.test, "--out", tmp_path / "again"]
    taken = ["--reuse", tmp_path / "out", "--only", "one", "--no-plots"]
    result = run("ablate", table, files.train, *splits, *taken, *TINY)
    assert result.exit_code == 0, result.output
    assert "1 of 1 variants reused from other studies" in result.stderr
    assert not (tmp_path / "again" / "runs" / "one" / "model").exists()


def test_a_failed_variant_is_reported_and_the_others_kept(ablate, table, tmp_path, monkeypatch):
    import glocal.train.run

    fit = glocal.train.run.fit

    def fails(recipe, *arguments, **options):
        if len(recipe.experts) == 2:
            raise RuntimeError("no more memory")
        return fit(recipe, *arguments, **options)

    monkeypatch.setattr(glocal.train.run, "fit", fails)
    result = ablate(table)
    assert result.exit_code == 1
    assert "1 of 2 variants failed: two" in result.stderr
    assert "no more memory" in result.stdout.replace("\n", " ")
    document = json.loads((tmp_path / "out" / "pair.json").read_text(encoding="utf-8"))
    assert [v["status"] for v in document["variants"]] == ["done", "failed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "three"], "there is no variant 'three'"),
        (["--seeds", "0;1"], "seeds '0;1': expected whole numbers"),
        (["--seeds", "0,1", "-s", "train.seed=2"], "exclude each other"),
        (["--seeds", "0,1", "-s", "train.members=2"], "must lie 2 apart, such as 0,2"),
        (["--reuse", "nowhere"], "no finished results to reuse in nowhere"),
        (["--reuse", "nowhere", "--overwrite"], "--reuse does not train"),
        (["-s", "experts=['D-last']"], "it is what they differ in"),
        (["-s", "train.epoch=3"], "did you mean 'epochs'"),
        (["-s", "train.batch_size=0"], "at least 1"),
        (["--recipe", "mexml"], "there is no recipe 'mexml'"),
    ],
)
def test_wrong_options(ablate, table, options, message):
    result = ablate(table, *options)
    assert result.exit_code == 1
    assert message in result.stderr


def test_unknown_table_and_nothing_to_measure_on(run, files, table, tmp_path):
    result = run("ablate", "me-xml-table5", files.train, "--test", files.test, "--out", tmp_path)
    assert result.exit_code == 1
    assert "did you mean 'me-xml-table" in result.stderr
    result = run("ablate", table, files.train, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "--test, --dev or both" in result.stderr


def test_nothing_to_measure_on_is_said_before_training(run, files, table, tmp_path):
    texts = write_jsonl(tmp_path / "bare.jsonl", [{"text": "a cat", "labels": []}])
    for splits in (["--dev", texts], ["--dev", files.dev, "--test", texts]):
        result = run("ablate", table, files.train, *splits, "--out", tmp_path / "out", *TINY)
        assert result.exit_code == 1
        assert f"{texts}: none of its 1 texts has labels" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_a_folder(run, files, table, tmp_path):
    for out in (files.train, files.train / "deeper"):
        result = run("ablate", table, files.train, "--test", files.test, "--out", out, *TINY)
        assert result.exit_code == 1
        assert result.stderr == (
            f"error: --out {out}: {files.train} is a file; give a folder or a new name\n"
        )


def test_a_layer_the_encoder_does_not_have(ablate, table, tmp_path):
    table.write_text(TABLE.replace('["D-last", "A-1"]', '["D-last", "A-8"]'), encoding="utf-8")
    result = ablate(table)
    assert result.exit_code == 1
    assert "'two': expert 'A-8': layer 8 does not exist" in result.stderr
    assert "layers 0 to 2" in result.stderr
    table.write_text(TABLE.replace('["D-last", "A-1"]', "[]"), encoding="utf-8")
    assert "'experts' is empty" in ablate(table).stderr
    assert not (tmp_path / "out").exists()
