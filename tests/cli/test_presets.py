"""The presets on the command line: their list, a budget, and a model of several members."""

import json
from dataclasses import replace

import pytest

from glocal.config import PRESETS, load_recipe, recipe_names
from tests.tiny import FAST

# Without the number of epochs, which a budget decides.
OPEN = [part for text in FAST if "epochs" not in text for part in ("-s", text)]


@pytest.fixture(scope="module")
def best(files, tmp_path_factory):
    """A model of two members, and what was said while it was trained."""
    from tests.cli.conftest import invoke

    folder = tmp_path_factory.mktemp("best")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        result = invoke(
            "train", files.train, "--dev", files.dev, "--out", folder / "m", "--recipe", "best",
            *OPEN, "-s", "train.epochs=2", "-s", "train.members=2",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    return folder / "m", result.stderr


def test_presets_come_first_with_when_to_use_them(run):
    assert recipe_names()[: len(PRESETS)] == list(PRESETS)
    lines = run("recipes").stdout.splitlines()
    starts = [line.split()[0] for line in lines if line[2:3].isalpha()]
    assert starts[:7] == ["preset", *PRESETS, "recipe"]
    assert any("fast" in line and "no GPU" in line for line in lines)


def test_large_is_balanced_on_a_larger_encoder_and_best_is_large_three_times():
    balanced, large, best = (load_recipe(name) for name in ("balanced", "large", "best"))
    assert (large.experts, large.labels) == (balanced.experts, balanced.labels)
    assert large.encoder.name == "mpnet"
    assert (best.encoder, best.train) == (large.encoder, replace(large.train, members=3))


def test_a_missing_encoder_is_named_before_anything_is_trained(run, files, tmp_path):
    result = run("train", files.train, "--recipe", "large", "--out", tmp_path / "m")
    assert result.exit_code == 1
    assert "glocal encoders get mpnet" in result.stderr
    assert not (tmp_path / "m").exists()


def test_members_are_counted(best):
    _, said = best
    assert "member 1 of 2, seed 0" in said
    assert "member 2 of 2, seed 1" in said


def test_every_command_takes_a_model_of_members(run, best, files):
    model, _ = best
    report = json.loads(run("eval", model, files.test, "--json").stdout)
    assert set(report["scores"]) == {"combined", "D-last", "A-last", "S"}
    tags = [
        json.loads(line) for line in run("predict", model, files.test, "-k", 2).stdout.splitlines()
    ]
    assert [len(row["labels"]) for row in tags] == [2] * 24
    explained = run("explain", model, "the red cat").stdout
    assert all(title in explained for title in ("global", "local", "words"))
    voted = run("ensemble", model, model, files.test, "--eval")
    assert voted.exit_code == 0, voted.output


def test_a_budget_is_told_what_it_comes_to(run, files, tmp_path):
    result = run(
        "train", files.train, "--out", tmp_path / "m", "--recipe", "glocalxml", "--budget", "1h",
        *OPEN, "-s", "train.batch_size=64",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "budget 1 h 00 min" in result.stderr
    assert "chosen: 9 epochs" in result.stderr


@pytest.mark.parametrize("budget", ["0", "abc", "10 bananas"])
def test_a_budget_that_is_no_time_is_refused_before_the_data_is_read(run, tmp_path, budget):
    result = run("train", "missing.jsonl", "--out", tmp_path / "m", "--budget", budget)
    assert result.exit_code == 1
    assert f"the budget '{budget}' is not a time" in result.stderr


def test_a_budget_and_epochs_contradict_each_other(run, tmp_path):
    result = run(
        "train", "missing.jsonl", "--out", tmp_path / "m", "--budget", "5m", "-s", "train.epochs=2"
    )
    assert result.exit_code == 1
    assert "leave one of them out" in result.stderr


def test_auto_begins_with_the_sparse_model_of_fast():
    assert load_recipe("auto").sparse == load_recipe("fast").sparse
    assert load_recipe("balanced").sparse != load_recipe("fast").sparse
