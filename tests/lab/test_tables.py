import pytest

from glocal.config.expert_names import parse_experts
from glocal.errors import ConfigError
from glocal.lab.variant_tables import load_table, resolve, select, table_names


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


OWN = """
title = "Own"
recipe = "glocalxml"
[settings]
train.epochs = 2
[[variants]]
name = "a"
settings = { experts = ["D-last"] }
[[variants]]
name = "b"
settings = { experts = ["D-last", "A-1"], train = { seed = 3 } }
"""


PAPERS = ["glocalxml-table3", "glocalxml-table4", "me-xml-table2", "me-xml-table4"]


@pytest.mark.parametrize("name", table_names())
def test_every_table_resolves(name):
    table = load_table(name)
    for variant, recipe in zip(table.variants, resolve(table).values(), strict=True):
        assert parse_experts(recipe.experts, 12)
        assert all(len(values) == 3 for values in variant.published.values())


@pytest.mark.parametrize("name", PAPERS)
def test_experts_that_are_compared_score_every_label(name):
    table = load_table(name)
    for variant, recipe in zip(table.variants, resolve(table).values(), strict=True):
        assert recipe.candidates.mode == "full"
        assert set(variant.published) <= {*recipe.experts, "combined"}


def test_the_eleven_rows_of_table_4():
    table = load_table("me-xml-table4")
    rows = []
    for recipe in resolve(table).values():
        experts = [(e.kind, e.layers) for e in parse_experts(recipe.experts, 12)]
        rows.append((experts, recipe.loss.kind, recipe.loss.diversity_weight))
    d12, a1, a12 = ("D", (12,)), ("A", (1,)), ("A", (12,))
    diverse = ("individual", 0.01)
    assert rows == [
        ([d12], *diverse),
        ([a1], *diverse),
        ([a12], *diverse),
        ([("D", (12, 1))], *diverse),
        ([d12, a1], "collaborative", 0.0),
        ([d12, a1], "individual", 0.0),
        ([d12, a1], *diverse),
        ([d12, ("D", (1,))], *diverse),
        ([d12, a12], *diverse),
        ([d12, a1, ("A", (6,))], *diverse),
        ([d12, a1, ("D", (6,))], *diverse),
    ]
    assert len({variant.title for variant in table.variants}) == 11


def test_the_eight_configurations_of_treaderxml():
    recipes = resolve(load_table("treaderxml-table3"))
    assert [recipe.reader.configuration for recipe in recipes.values()] == list(range(8))
    assert {recipe.experts for recipe in recipes.values()} == {("R-last",)}


def test_glocalxml_tables_report_the_experts_apart():
    assert all(load_table(f"glocalxml-table{n}").parts for n in (3, 4))
    stop = resolve(load_table("glocalxml-table4"))["stop-gradient"]
    assert stop.attention.stop_gradient


def test_own_table_and_the_order_of_settings(tmp_path):
    table = load_table(write(tmp_path / "own.toml", OWN))
    assert (table.name, table.title) == ("own", "Own")
    recipes = resolve(table, ["train.epochs=7", "train.batch_size=8"])
    assert [r.train.epochs for r in recipes.values()] == [7, 7]
    assert [r.train.seed for r in recipes.values()] == [0, 3]
    other = resolve(table, recipe="me-xml")
    assert other["a"].system == "me-xml"


@pytest.mark.parametrize("override", ["experts=['A-1']", "train.seed=1"])
def test_what_variants_differ_in_cannot_be_set(tmp_path, override):
    table = load_table(write(tmp_path / "own.toml", OWN))
    with pytest.raises(ConfigError, match="it is what they differ in"):
        resolve(table, [override])


def test_wrong_settings_are_reported_once(tmp_path):
    table = load_table(write(tmp_path / "own.toml", OWN))
    with pytest.raises(ConfigError) as caught:
        resolve(table, ["train.epocs=3"])
    assert len(caught.value.problems) == 1
    assert "did you mean 'epochs'" in str(caught.value)


def test_selection_keeps_the_order():
    table = load_table("me-xml-table2")
    found = select(table.variants, ["3-experts", "1-expert"])
    assert [variant.name for variant in found] == ["1-expert", "3-experts"]
    assert len(select(table.variants, [])) == 3
    with pytest.raises(ConfigError, match=r"no variant '4-experts' \(did you mean '3-experts'"):
        select(table.variants, ["4-experts"])


def test_unknown_table():
    with pytest.raises(ConfigError, match="did you mean 'me-xml-table4'"):
        load_table("mexml-table4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 'x'", "at least one"),
        ("[[variants]]\nname = 'a/b'", "names a folder"),
        ("[[variants]]\ntitle = 'a'", "names a folder"),
        ("[[variants]]\nname = 'a'\n[[variants]]\nname = 'a'", "two variants are called 'a'"),
        ("[[variants]]\nname = 'a'\nsetings = {}", "did you mean 'settings'"),
        ("part = true\n[[variants]]\nname = 'a'", "did you mean 'parts'"),
        ("x = ", "not valid TOML"),
        ("variants = [1]", "variant 1 must be a table .* not 1"),
        ("settings = 3\n[[variants]]\nname = 'a'", "'settings' must be a table .* not 3"),
        ("[[variants]]\nname = 'a'\nsettings = 3", "variant 1: 'settings' must be a table"),
        ("[[variants]]\nname = 'a'\npublished = 3", "variant 1: 'published' must be a table"),
        (
            "[[variants]]\nname = 'a'\npublished = { combined = '80.1' }",
            "'published' of 'combined' must be a list of numbers .* not '80.1'",
        ),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_table(write(tmp_path / "own.toml", text))


def test_missing_table(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the table"):
        load_table(str(tmp_path / "none.toml"))


def test_treaderxml_learns_no_weights_on_dev_as_in_the_paper():
    recipes = resolve(load_table("treaderxml-table3"))
    assert {recipe.combine for recipe in recipes.values()} == {"mean"}


def test_tables_of_me_xml_have_its_plain_attention():
    for name in ("me-xml-table2", "me-xml-table4"):
        recipes = resolve(load_table(name))
        assert not any(recipe.attention.projections for recipe in recipes.values())
    ours = resolve(load_table("me-xml-table4"), ["attention.projections=true"])
    assert all(recipe.attention.projections for recipe in ours.values())


def test_treaderxml_with_the_network_of_the_paper():
    recipes = resolve(load_table("treaderxml-table3-paper"))
    assert [recipe.reader.configuration for recipe in recipes.values()] == list(range(8))
    for recipe in recipes.values():
        assert recipe.reader.encode == "static"
        assert not recipe.reader.prior
        assert not recipe.reader.residual
        assert recipe.train.schedule == "plateau"


def test_additions_to_treaderxml_come_one_by_one():
    recipes = resolve(load_table("treaderxml-additions"))
    paper, *others, everything = recipes.values()
    changed = [
        {part for part in ("reader", "teacher") if getattr(recipe, part) != getattr(paper, part)}
        for recipe in (*others, everything)
    ]
    assert changed == [{"reader"}, {"reader"}, {"reader"}, {"teacher"}, {"reader", "teacher"}]
    assert (everything.reader.prior, everything.reader.residual) == (True, True)
    assert everything.reader.pooling == "text"
