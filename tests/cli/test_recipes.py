import json

import pytest

from glocal.config import load_recipe, recipe_names
from glocal.config.toml import documented_toml


def test_list_is_the_default(run):
    assert run("recipes").stdout == run("recipes", "list").stdout
    assert "glocalxml" in run("recipes").stdout


def test_list_as_json_has_every_recipe(run):
    rows = json.loads(run("recipes", "list", "--json").stdout)
    assert [row["name"] for row in rows] == recipe_names()


@pytest.mark.parametrize("name", recipe_names())
def test_shown_recipe_reads_back_as_the_same(tmp_path, name):
    recipe = load_recipe(name)
    path = tmp_path / "shown.toml"
    path.write_text(documented_toml(recipe), encoding="utf-8")
    assert load_recipe(path) == recipe


def test_show_explains_every_key(run):
    shown = run("recipes", "show", "glocalxml").stdout
    lines = [line for line in shown.splitlines() if " = " in line]
    rates = shown.split("[train.rates]")[1].splitlines()
    assert all("  # " in line for line in lines if line not in rates)
    assert "(one of: cls, mean)" in shown


def test_show_takes_overrides(run):
    assert "epochs = 3  #" in run("recipes", "show", "glocalxml", "-s", "train.epochs=3").stdout


def test_unknown_recipe_suggests_the_nearest(run):
    result = run("recipes", "show", "glocalxm")
    assert result.exit_code == 1
    assert "did you mean 'glocalxml'?" in result.stderr


def test_every_wrong_override_is_reported_at_once(run):
    result = run(
        "recipes", "show", "glocalxml", "-s", "train.epoch=3", "-s", "train.batch_size=big"
    )
    assert result.exit_code == 1
    assert "unknown key 'train.epoch' (did you mean 'epochs'?)" in result.stderr
    assert "'train.batch_size' must be a whole number, not 'big'" in result.stderr
