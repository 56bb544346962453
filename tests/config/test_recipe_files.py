"""Recipes: every problem at once, nearest names, overrides, inheritance, TOML there and back."""

import dataclasses
import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal import config
from glocal.config import (
    Recipe,
    TrainConfig,
    load_recipe,
    parse_override,
    recipe_from_mapping,
    recipe_names,
    recipe_to_mapping,
    to_toml,
)
from glocal.config.option import help_texts
from glocal.errors import ConfigError


def problems(mapping):
    with pytest.raises(ConfigError) as error:
        recipe_from_mapping(mapping, source="test")
    return error.value.problems


# --- built-in recipes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_every_built_in_recipe_loads_and_says_what_it_is(name):
    recipe = load_recipe(name)
    assert recipe.description
    assert recipe.system
    assert recipe_from_mapping(recipe_to_mapping(recipe)) == recipe


def test_the_defaults_are_a_recipe():
    assert recipe_from_mapping({}) == Recipe()
    assert "glocalxml" in recipe_names()


def test_every_setting_has_a_help_text():
    sections = [f.default_factory for f in dataclasses.fields(Recipe) if is_section(f)]
    assert len(sections) > 10
    for section in (Recipe, *sections):
        plain = [f.name for f in dataclasses.fields(section) if not is_section(f)]
        texts = help_texts(section)
        assert list(texts) == plain
        assert all(texts.values())
    assert help_texts(TrainConfig)["seed"] == "Random seed"


def is_section(field):
    return dataclasses.is_dataclass(field.default_factory)


# --- problems ---------------------------------------------------------------------------------


def test_all_problems_come_at_once():
    found = problems(
        {
            "sistem": "glocalxml",
            "encoder": {"max_length": 2, "poling": "cls"},
            "train": {"epochs": "many", "rates": {"encoder": -1.0, "clasifier": 1.0}},
            "loss": 5,
        }
    )
    assert len(found) == 7
    assert all(problem.startswith("test: ") for problem in found)
    text = "\n".join(found)
    assert "unknown key 'sistem' (did you mean 'system'?)" in text
    assert "unknown key 'encoder.poling' (did you mean 'pooling'?)" in text
    assert "'encoder.max_length' must be at least 3, not 2" in text
    assert "'train.epochs' must be a whole number, not 'many'" in text
    assert "unknown key 'train.rates.clasifier' (did you mean 'classifier'?)" in text
    assert "'train.rates.encoder' must be a number of at least 0, not -1.0" in text
    assert "'loss' must be a section with keys, not 5" in text


def test_problems_of_the_file_and_of_overrides_come_together():
    with pytest.raises(ConfigError) as error:
        load_recipe("glocalxml", ["train.epoch=3", "nonsense", "encoder.pooling=max"])
    text = str(error.value)
    assert len(error.value.problems) == 3
    assert "did you mean 'epochs'" in text
    assert "'nonsense' is not of the form section.key=value" in text
    assert "'encoder.pooling' must be one of cls, mean, not 'max'" in text


def test_a_name_that_is_like_no_other_gets_no_suggestion():
    assert problems({"zzzzzz": 1}) == ["test: unknown key 'zzzzzz'"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("train.epochs", 1.5, "a whole number"),
        ("train.epochs", True, "a whole number"),
        ("train.batch_size", 0, "at least 1"),
        ("train.warmup", 1.01, "at most 1"),
        ("train.warmup", "half", "a number"),
        ("train.warmup", True, "a number"),
        ("train.warmup", math.nan, "a finite number"),
        ("train.weight_decay", math.inf, "a finite number"),
        ("attention.temperature", 0, "above 0"),
        ("encoder.freeze", 1, "true or false"),
        ("encoder.freeze", "yes", "true or false"),
        ("encoder.name", True, "a string"),
        ("encoder.name", ["minilm"], "a string"),
        ("experts", "D-last", "a list of strings"),
        ("experts", ["D-last", 5], "a list of strings"),
        ("train.rates", 0.1, "a table of numbers"),
        (
            "train.schedule",
            "stepwise",
            "one of linear, cosine, constant, slanted-triangular, plateau",
        ),
    ],
)
def test_types_and_ranges(key, value, words):
    mapping = value
    for part in reversed(key.split(".")):
        mapping = {part: mapping}
    (problem,) = problems(mapping)
    assert problem == f"test: '{key}' must be {words}, not {value!r}"


def test_whole_numbers_serve_as_numbers_and_numbers_as_strings():
    recipe = recipe_from_mapping({"train": {"warmup": 0}, "loss": {"bias_init": -5.0}})
    assert recipe.train.warmup == 0.0
    assert isinstance(recipe.train.warmup, float)
    assert recipe.loss.bias_init == "-5.0"


def test_some_rates_keep_the_others():
    rates = recipe_from_mapping({"train": {"rates": {"mlp": 1}}}).train.rates
    assert rates == {**TrainConfig().rates, "mlp": 1.0}


def test_a_recipe_that_does_not_exist():
    with pytest.raises(ConfigError, match=r"no recipe 'glocalxlm' \(did you mean 'glocalxml'\?\)"):
        load_recipe("glocalxlm")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the recipe .*absent\.toml"):
        load_recipe(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("[train\n")
    with pytest.raises(ConfigError, match=r"bad\.toml is not valid TOML.*line 1"):
        load_recipe(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes("description = 'é'".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"cannot read the recipe .*latin\.toml"):
        load_recipe(tmp_path / "latin.toml")


# --- overrides --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.epochs=3", ("train.epochs", 3)),
        ("train.warmup = 0.5", ("train.warmup", 0.5)),
        ("train.rates.encoder=1e-5", ("train.rates.encoder", 1e-5)),
        ("encoder.freeze=true", ("encoder.freeze", True)),
        ("encoder.name=bert-base-uncased", ("encoder.name", "bert-base-uncased")),
        ("encoder.name='5'", ("encoder.name", "5")),
        ("encoder.name=a=b", ("encoder.name", "a=b")),
        ('experts=["D-last"]', ("experts", ["D-last"])),
        ("description=", ("description", "")),
    ],
)
def test_overrides_are_toml_and_plain_words_are_strings(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["train.epochs", "=3", " =3", ""])
def test_an_override_needs_a_key_and_a_value(text):
    with pytest.raises(ConfigError, match=r"is not of the form section\.key=value"):
        parse_override(text)


def test_overrides_apply_in_order_and_leave_the_rest():
    plain = load_recipe("glocalxml")
    recipe = load_recipe("glocalxml", ["train.epochs=3", "train.epochs=4", "train.rates.mlp=1"])
    assert recipe.train.epochs == 4
    assert recipe.train.rates == {**plain.train.rates, "mlp": 1.0}
    assert recipe.encoder == plain.encoder
    assert load_recipe("glocalxml") == plain  # nothing sticks


def test_a_value_is_not_a_section():
    with pytest.raises(ConfigError, match="'epochs' is a value, not a section"):
        load_recipe("glocalxml", ["train.epochs.more=3"])


# --- extends ----------------------------------------------------------------------------------


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_chain_of_recipes_is_merged_key_by_key(tmp_path):
    write(tmp_path, "base.toml", 'extends = "me-xml"\n[train]\nepochs = 5\nbatch_size = 7\n')
    child = write(tmp_path, "child.toml", 'extends = "base.toml"\n[train]\nepochs = 6\n')
    recipe, parent = load_recipe(child), load_recipe("me-xml")
    assert recipe.system == "me-xml"
    assert (recipe.train.epochs, recipe.train.batch_size) == (6, 7)
    assert recipe.loss == parent.loss
    assert recipe.train.rates == parent.train.rates


def test_a_parent_lies_beside_the_file_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", "base.toml", "[train]\nepochs = 5\n")
    child = write(tmp_path / "inner", "child.toml", 'extends = "base.toml"\n')
    monkeypatch.chdir(tmp_path)
    assert load_recipe(child).train.epochs == 5
    assert load_recipe("inner/child.toml").train.epochs == 5


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_a_circle_is_found(tmp_path, names):
    for name, parent in zip(names, (*names[1:], names[0]), strict=True):
        write(tmp_path, f"{name}.toml", f'extends = "{parent}.toml"\n')
    with pytest.raises(ConfigError, match=r"in a circle: .*a\.toml → .*a\.toml"):
        load_recipe(tmp_path / "a.toml")


def test_a_parent_that_does_not_exist_is_named(tmp_path):
    child = write(tmp_path, "child.toml", 'extends = "glocalxm"\n')
    with pytest.raises(ConfigError, match="no recipe 'glocalxm'"):
        load_recipe(child)


# --- TOML -------------------------------------------------------------------------------------

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
TABLES = st.recursive(
    st.one_of(VALUES, st.lists(VALUES, max_size=4)),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=80)
@given(st.dictionaries(KEYS, TABLES, max_size=5))
def test_what_is_written_is_read_back(mapping):
    found = tomllib.loads(to_toml(mapping))
    assert found == mapping
    assert repr(found) == repr(_reordered(mapping, found))  # floats stay floats


def _reordered(mapping, like):
    """The same mapping in the order of another: tables come after values in TOML."""
    if not isinstance(mapping, dict):
        return mapping
    return {key: _reordered(mapping[key], like[key]) for key in like}


@st.composite
def recipes(draw):
    def value(field):
        limits = field.metadata or dict.fromkeys(("choices", "at_least", "above", "at_most"))
        if limits["choices"]:
            return draw(st.sampled_from(limits["choices"]))
        default = field.default
        if isinstance(default, bool):
            return draw(st.booleans())
        if isinstance(default, int | float):
            low = max(limits["at_least"] or 0, (limits["above"] or 0) + 1 if limits["above"] else 0)
            low = 1 if limits["above"] is not None else low
            high = limits["at_most"] if limits["at_most"] is not None else low + 1000
            kind = st.integers if isinstance(default, int) else st.floats
            return draw(kind(low, high))
        if isinstance(default, str):
            return draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
        return default

    sections = {
        field.name: {
            inner.name: value(inner)
            for inner in dataclasses.fields(field.default_factory)
            if inner.default is not dataclasses.MISSING
        }
        for field in dataclasses.fields(Recipe)
        if is_section(field)
    }
    return recipe_from_mapping(sections)


@settings(deadline=None, max_examples=40)
@given(recipes())
def test_a_recipe_survives_toml(recipe):
    text = to_toml(recipe_to_mapping(recipe))
    assert recipe_from_mapping(tomllib.loads(text)) == recipe


def test_public_names_exist():
    assert all(hasattr(config, name) for name in config.__all__)


def test_a_folder_named_like_a_recipe_is_not_taken_for_it(tmp_path):
    (tmp_path / "glocalxml").mkdir()
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "glocalxml"\n[train]\nepochs = 2\n')
    assert load_recipe(mine).train.epochs == 2


def test_circles_are_found_under_any_spelling_of_a_path(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.toml").write_text('extends = "../x/b.toml"')
    (tmp_path / "x" / "b.toml").write_text('extends = "../x/a.toml"')
    with pytest.raises(ConfigError, match="circle"):
        load_recipe(tmp_path / "x" / "a.toml")


def test_an_enormous_number_is_a_problem_and_no_crash():
    with pytest.raises(ConfigError, match=r"train\.warmup.*\n.*train\.rates"):
        load_recipe("glocalxml", [f"train.warmup={10**400}", f"train.rates.encoder={10**400}"])


def test_recipes_as_published_combine_by_the_mean():
    published = [name for name in recipe_names() if "-paper-" in name and "aplc" not in name]
    assert len(published) > 10
    assert {load_recipe(name).combine for name in published} == {"mean"}
