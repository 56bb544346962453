import math

import numpy as np
import pytest
import torch

from glocal.config import TrainConfig
from glocal.systems.system import LabelStatistics
from glocal.train.optim import build_optimizer, count_stale, schedule_factor, set_rates
from tests.tiny import build_system, tiny_recipe


def factors(schedule, warmup, steps=10):
    config = TrainConfig(schedule=schedule, warmup=warmup)
    return [schedule_factor(config, step, steps) for step in range(steps)]


@pytest.mark.parametrize("schedule", ["linear", "slanted-triangular"])
def test_a_slanted_triangle_rises_to_one_and_falls_towards_zero(schedule):
    rise = [0.25, 0.5, 0.75, 1.0]
    fall = [6 / 6, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert factors(schedule, 0.4) == pytest.approx(rise + fall)


def test_cosine_falls_along_half_a_wave():
    expected = [0.5, 1.0, *(0.5 + 0.5 * math.cos(math.pi * i / 8) for i in range(8))]
    assert factors("cosine", 0.2) == pytest.approx(expected)


def test_constant_stays_after_the_warm_up():
    assert factors("constant", 0.2) == pytest.approx([0.5] + [1.0] * 9)


@pytest.mark.parametrize("schedule", ["linear", "slanted-triangular", "cosine", "constant"])
def test_no_warm_up_starts_at_the_full_rate(schedule):
    found = factors(schedule, 0.0)
    assert found[0] == pytest.approx(1.0)
    assert all(0 < factor <= 1 for factor in found)


@pytest.mark.parametrize("schedule", ["linear", "slanted-triangular", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.04, 0.5, 1.0])
def test_one_step_and_nothing_but_warm_up_are_possible(schedule, warmup):
    for steps in (1, 2, 7):
        found = factors(schedule, warmup, steps)
        assert all(0 < factor <= 1 for factor in found)
    if warmup == 1.0:
        assert found == pytest.approx([(i + 1) / 7 for i in range(7)])


def build(*overrides):
    recipe = tiny_recipe("glocalxml", *overrides)
    system, _ = build_system(recipe, LabelStatistics(np.array([3, 1, 2]), 5))
    return system, recipe.train


def test_groups_have_their_rates_and_only_encoder_matrices_decay():
    system, config = build("train.rates.queries=0.5", "train.weight_decay=0.25")
    optimizer = build_optimizer(system, config, torch.device("cpu"))
    set_rates(optimizer, 0.5)
    by_id = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in system.named_parameters():
        group = by_id[id(parameter)]
        matrix = name.startswith("encoder.") and parameter.dim() > 1
        assert group["weight_decay"] == (0.25 if matrix else 0.0), name
        assert group["lr"] == pytest.approx(0.5 * config.rates[group["name"]])
    queries = system.experts[1].query
    assert by_id[id(queries)]["lr"] == pytest.approx(0.25)


def test_a_frozen_encoder_is_left_out():
    system, config = build("encoder.freeze=true")
    optimizer = build_optimizer(system, config, torch.device("cpu"))
    assert "encoder" not in {group["name"] for group in optimizer.param_groups}


def test_a_plateau_lowers_the_rate_after_each_evaluation_without_gain():
    config = TrainConfig(schedule="plateau", warmup=0.2)
    assert schedule_factor(config, 0, 10) == 0.5  # the warm-up
    found = [schedule_factor(config, 5, 10, stale=stale) for stale in range(3)]
    assert found == pytest.approx([1.0, 1 / 3, 1 / 9])


@pytest.mark.parametrize(
    ("scores", "stale"),
    [([], 0), ([0.1, 0.2, 0.3], 0), ([0.3, 0.3], 1), ([0.3, 0.1, 0.2, 0.4, 0.4], 3)],
)
def test_stale_evaluations_are_counted_against_the_best(scores, stale):
    assert count_stale(scores) == stale
