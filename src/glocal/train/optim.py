"""The optimizer: AdamW with a learning rate per named group, and the schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from glocal.config import TrainConfig
from glocal.systems.system import System

_PLATEAU_DECAY = 1 / 3  # the paper gives no factor


def build_optimizer(system: System, config: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """Return AdamW over the system's groups; only the encoder's matrices have weight decay."""
    groups: list[dict[str, Any]] = []
    for name, parameters in system.parameter_groups().items():
        base = {"name": name, "base_rate": config.rates[name]}
        for is_decayed, decay in ((True, config.weight_decay), (False, 0.0)):
            own = [p for p in parameters if (name == "encoder" and p.dim() > 1) is is_decayed]
            if trained := [p for p in own if p.requires_grad]:
                groups.append({**base, "params": trained, "weight_decay": decay})
    _check_complete(system, groups)
    return torch.optim.AdamW(groups, lr=0.0, fused=True)


def _check_complete(system: nn.Module, groups: list[dict[str, Any]]) -> None:
    grouped = [id(p) for group in groups for p in group["params"]]
    wanted = {id(p) for p in system.parameters() if p.requires_grad}
    assert len(grouped) == len(set(grouped)), "a parameter is in two groups"
    assert set(grouped) == wanted, "a parameter is in no group"


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the rate of each group to its own rate times the schedule's factor."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_rate"] * factor


def schedule_factor(config: TrainConfig, step: int, steps: int, *, stale: int = 0) -> float:
    """Return the schedule's factor at a step, counted from 0.

    `linear` is the slanted triangle of APLC-XLNet's Eq. 15: straight up during the warm-up, which
    may be empty, and straight down to zero after it. `plateau` is TReaderXML's decay after the
    model has converged.

    Args:
        config: The run's settings.
        step: The step.
        steps: All steps of the run.
        stale: Evaluations on dev so far that brought no gain.
    """
    warmup = round(config.warmup * steps)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "plateau":
        return _PLATEAU_DECAY**stale
    left = (steps - step) / max(1, steps - warmup)
    if config.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * (1.0 - left)))
    return left


def count_stale(scores: Iterable[float]) -> int:
    """Count the evaluations that were not better than all before them."""
    best, stale = -math.inf, 0
    for score in scores:
        stale += score <= best
        best = max(best, score)
    return stale
