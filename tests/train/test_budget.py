"""What is trained in the time there is: described situations and the decision."""

import math

import pytest

from glocal.config.durations import format_seconds, parse_duration
from glocal.errors import ConfigError
from glocal.train.budget import (
    FEWEST_EPOCHS,
    MARGIN,
    PATIENCE,
    BudgetWatch,
    Situation,
    Speed,
    Wish,
    choose,
)


def situation(*, gpu=False, budget=None, spent=0.0):
    machine = "a GPU" if gpu else "two cores"
    return Situation(45_000, 4_108, 5.1, (583, 1_900), machine, gpu, budget, spent)


AUTO = Wish(experts=False, epochs=0, ceiling=9, members=0)
SPEED = Speed(
    once=10.0, member=5.0, epoch=100.0
)  # nine epochs: 915 s; three members of them: 2,725


@pytest.mark.parametrize(
    ("here", "wish", "expected"),
    [
        # (preset, epochs, members); a budget is held against estimates with a margin
        (situation(), AUTO, ("fast", 0, 1)),
        (situation(gpu=True), AUTO, ("balanced", 9, 1)),
        (situation(budget=60), AUTO, ("fast", 0, 1)),
        (situation(budget=60, gpu=True), AUTO, ("fast", 0, 1)),
        (situation(budget=MARGIN * 314.9), AUTO, ("fast", 0, 1)),
        (situation(budget=MARGIN * 315.1), AUTO, ("balanced", 3, 1)),
        (situation(budget=MARGIN * 315.1, spent=1), AUTO, ("fast", 0, 1)),
        (situation(budget=MARGIN * 715.1), AUTO, ("balanced", 7, 1)),
        (situation(budget=MARGIN * 2000), AUTO, ("balanced", 9, 1)),
        (situation(budget=MARGIN * 2724), AUTO, ("balanced", 9, 1)),
        (situation(budget=MARGIN * 2726), AUTO, ("balanced", 9, 3)),
        (situation(budget=86_400), AUTO, ("balanced", 9, 3)),
        # the user's word wins
        (situation(), Wish(False, 2, 2, 0), ("balanced", 2, 1)),
        (situation(budget=900), Wish(False, 0, 9, 3), ("fast", 0, 1)),
        (situation(budget=86_400), Wish(False, 0, 9, 1), ("balanced", 9, 1)),
        (situation(budget=600), Wish(True, 0, 9, 1), ("", 4, 1)),
        (situation(budget=60), Wish(True, 0, 9, 1), ("", 1, 1)),
        (situation(budget=600), Wish(True, 0, 9, 3), ("", 1, 3)),
        (situation(), Wish(True, 0, 9, 1), ("", 9, 1)),
    ],
)
def test_choice(here, wish, expected):
    choice = choose(here, SPEED, wish)
    assert (choice.preset, choice.epochs, choice.members) == expected
    assert any(line.startswith("chosen: ") for line in choice.lines)


def test_a_choice_with_an_encoder_stays_within_the_budget():
    for budget in range(400, 5000, 37):
        choice = choose(situation(budget=budget, spent=20.0), SPEED, AUTO)
        assert choice.preset != "fast"
        assert choice.seconds == SPEED.total(choice.members, choice.epochs)
        assert 20.0 + MARGIN * choice.seconds <= budget + 1e-9


def test_without_a_budget_a_cpu_has_patience_and_a_gpu_any():
    slow = Speed(0.0, 0.0, PATIENCE)
    assert choose(situation(), slow, AUTO).preset == "fast"
    assert choose(situation(gpu=True), slow, AUTO).preset == "balanced"
    slow_enough = Speed(0.0, 0.0, PATIENCE / FEWEST_EPOCHS - 1)
    choice = choose(situation(), slow_enough, AUTO)
    assert (choice.preset, choice.epochs) == ("balanced", FEWEST_EPOCHS)


def test_reasons_are_told_in_plain_lines():
    lines = choose(situation(budget=600, spent=217), SPEED, AUTO).lines
    assert lines == (
        "45,000 texts of 583 words (95 in 100 have at most 1,900), 4,108 labels, 5.1 a text; "
        "two cores",
        "measured: one epoch takes about 1 min 40 s; budget 10 min 00 s, 3 min 37 s of it spent",
        "chosen: balanced, 3 epochs, about 5 min 15 s from here",
        "fewer than the 9 epochs it would have with more time",
    )
    lines = choose(situation(budget=300, spent=217), SPEED, AUTO).lines
    assert lines[-2:] == (
        "an encoder beside it would need at least 3 epochs, about 5 min 15 s: too long",
        "for higher accuracy: the recipe balanced, about 15 min 15 s on this machine",
    )


def test_what_cannot_fit_is_trained_and_said():
    choice = choose(situation(budget=60), SPEED, Wish(True, 0, 9, 1))
    assert "more than the budget" in choice.lines[-1]
    assert "more than the budget" not in " ".join(choose(situation(), SPEED, AUTO).lines)


def test_without_an_encoder_fast_is_left():
    choice = choose(situation(budget=60), "there is none", AUTO)
    assert (choice.preset, choice.lines[-1]) == ("fast", "chosen: fast, since there is none")
    choice = choose(situation(budget=60), "there is none", Wish(True, 0, 9, 3))
    assert (choice.preset, choice.members) == ("", 3)


def test_no_speed_is_too_high():
    assert Speed(0.0, 0.0, 0.0).epochs_within(math.inf, 1) > 9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), (" 1.5 H ", 5400), ("1d", 86_400)],
)
def test_budgets(text, seconds):
    assert parse_duration(text) == seconds


def test_no_budget():
    assert parse_duration("") is None


@pytest.mark.parametrize("text", ["0", "10", "abc", "10 minutes", "m", "-5m", "5m5", "1e3s", "٣m"])
def test_a_budget_that_is_no_time_says_what_one_looks_like(text):
    with pytest.raises(ConfigError, match=r"is not a time; expected .* 90s, 10m"):
        parse_duration(text)


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="'0m' leaves no time"):
        parse_duration("0m")


def watched(budget, seconds_each):
    said, now = [], [100.0]
    watch = BudgetWatch(budget, 100.0, said.append, clock=lambda: now[0])
    watch("reading words")(1, 1)
    progress = watch("training labels")
    for done in range(1, 101):
        now[0] += seconds_each
        progress(done, 100)
    return said


def test_the_watch_speaks_once_and_only_when_the_budget_will_be_exceeded():
    assert watched(None, 5.0) == []
    assert watched(600.0, 5.0) == []
    (said,) = watched(300.0, 5.0)
    assert "about 8 min 20 s" in said
    assert "more than the budget of 5 min 00 s" in said


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds, words):
    assert format_seconds(seconds) == words
