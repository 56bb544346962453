"""The plan of a run: open settings are decided after companions are fitted, before training.

- open settings are `experts = ["auto"]`, `train.epochs = 0` and `train.members = 0`, as in the
  preset `auto`; with a `train.budget` the epochs of any recipe are a maximum;
- by then the time of the companions is known; the time of an encoder is measured (`measure`), and
  `budget` makes the decision;
- the plan is stored in `OUT.run/plan.json`: a resumed run follows it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.config import recipe_to_mapping
from glocal.config.durations import format_seconds
from glocal.config.expert_names import SPARSE_EXPERT, TEACHER
from glocal.config.resolve import CheckedRecipe, ResolvedRecipe, resolve, resolved_from_mapping
from glocal.config.rules import member_problems
from glocal.config.settings import NO_ENCODER
from glocal.data.atomic import write_json
from glocal.data.corpus import Corpus
from glocal.errors import TrainingError
from glocal.train.budget import Situation, Speed, Wish, choose
from glocal.train.checkpoint import START_AGAIN, RunFolder
from glocal.train.context import RunContext
from glocal.train.gather import RunInputs
from glocal.train.listener import TrainListener
from glocal.train.local_engine import LocalEngine

_COUNTED = 2000  # texts whose words are counted
_TRIAL_SECONDS = 20.0  # longest trial of an encoder on a CPU; with less time left none is made


@dataclass(frozen=True)
class Plan:
    """A resolved recipe and the reasons for it.

    Attributes:
        recipe: The settings.
        lines: The decision and its reasons; empty where nothing was open.
        budget: Seconds the run may take; None for no limit.
        estimate: Estimated seconds of the whole run.
    """

    recipe: ResolvedRecipe
    lines: tuple[str, ...] = ()
    budget: float | None = None
    estimate: float = 0.0

    def outcome(self, seconds: float, listener: TrainListener) -> dict[str, Any]:
        """Return the plan as stored with the model; warn where the run exceeded its budget."""
        if not self.lines:
            return {}
        if self.budget is not None and seconds > self.budget:
            listener.on_message(
                f"the run took {format_seconds(seconds)}, more than the budget of "
                f"{format_seconds(self.budget)}"
            )
        times = {"budget": self.budget, "estimate": self.estimate, "seconds": round(seconds, 1)}
        return {"plan": {"lines": list(self.lines), **times}}


def decide(checked: CheckedRecipe, inputs: RunInputs, context: RunContext) -> Plan:
    """Resolve a recipe, measuring how fast it trains where something is open.

    Args:
        checked: The recipe.
        inputs: Texts, labels and companions of its draft.
        context: Where the run computes, keeps its plan and reports the decision.
    """
    folder, engine = context.folder, context.engine
    if not checked.is_open:
        return Plan(_resolved(checked, inputs, engine))
    plan = _read(folder, checked)
    if plan is None:
        found = _plan(checked, inputs, context)
        plan = engine.gather([found])[0]  # all processes follow the first one's plan
        if engine.is_main:
            _write(folder, checked, plan)
    for line in plan.lines:
        context.listener.on_message(line)
    return plan


def _resolved(
    checked: CheckedRecipe, inputs: RunInputs, engine: LocalEngine, **planned: Any
) -> ResolvedRecipe:
    return resolve(
        checked,
        n_labels=len(inputs.labels),
        device_type=engine.device_type,
        processes=engine.world,
        **planned,
    )


def _plan(checked: CheckedRecipe, inputs: RunInputs, context: RunContext) -> Plan:
    engine, started = context.engine, context.started
    wish, budget = _wish(checked), checked.budget
    left = (budget or math.inf) - (time.monotonic() - started)
    experts = checked.draft.experts
    if not wish.experts and checked.draft.encoder.name == NO_ENCODER:
        speed: Speed | str = "the recipe has no encoder (encoder.name)"
    elif checked.missing_encoder:
        speed = f"there is no encoder: {checked.missing_encoder}"
    elif not set(experts) - {SPARSE_EXPERT, TEACHER}:
        speed = f"nothing in the experts {', '.join(experts)} is trained in epochs"
    elif left < _TRIAL_SECONDS and not wish.experts:
        speed = "too little of the budget is left to try an encoder"
    else:
        from glocal.train.measure import measure

        speed = measure(_resolved(checked, inputs, engine), inputs, context)
    situation = _situation(inputs, engine, budget, time.monotonic() - started)
    choice = choose(situation, speed, wish)
    drop_encoder = choice.preset == "fast"
    planned = {} if drop_encoder else {"epochs": choice.epochs, "members": choice.members}
    recipe = _resolved(checked, inputs, engine, drop_encoder=drop_encoder, **planned)
    return Plan(recipe, choice.lines, budget, round(situation.spent + choice.seconds, 1))


def _wish(checked: CheckedRecipe) -> Wish:
    train = checked.written.train
    alone = bool(member_problems(checked.draft))
    return Wish(
        experts=not checked.may_drop_encoder,
        epochs=0 if train.budget else train.epochs,
        ceiling=checked.draft.train.epochs,
        members=1 if alone else train.members,
    )


def _situation(
    inputs: RunInputs, engine: LocalEngine, budget: float | None, spent: float
) -> Situation:
    train, labels = inputs.train, inputs.labels
    return Situation(
        texts=len(train),
        labels=len(labels),
        labels_per_text=float(labels.counts.sum() / max(1, len(train))),
        words=_words(train),
        machine=f"{engine.describe()}{_memory()}",
        gpu=engine.device_type == "cuda",
        budget=budget,
        spent=spent,
    )


def _words(train: Corpus) -> tuple[int, int]:
    """Return the median and the 95th percentile of the words in a text."""
    order = np.random.default_rng(0).permutation(len(train))[:_COUNTED]
    counts = [len(text.split()) for text in train.take(np.sort(order)).texts()]
    median, most = np.percentile(counts, [50, 95])
    return round(float(median)), round(float(most))


def _memory() -> str:
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return ""
    return f", {size / 2**30:.0f} GB memory"


def _read(folder: RunFolder, checked: CheckedRecipe) -> Plan | None:
    """Return the plan of an interrupted run of the same recipe; None where there is none."""
    if not folder.plan_path.is_file():
        return None
    try:
        kept: Mapping[str, Any] = json.loads(folder.plan_path.read_text("utf-8"))
        if kept["asked"] != recipe_to_mapping(checked.written):
            return None
        settled = resolved_from_mapping(kept["recipe"], source=str(folder.plan_path))
        return Plan(settled, tuple(kept["lines"]), kept["budget"], kept["estimate"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"the plan in {folder.plan_path} cannot be read: {error}", remedies=[START_AGAIN]
        ) from error


def _write(folder: RunFolder, checked: CheckedRecipe, plan: Plan) -> None:
    kept = {
        "asked": recipe_to_mapping(checked.written),
        "recipe": recipe_to_mapping(plan.recipe),
        "lines": plan.lines,
        "budget": plan.budget,
        "estimate": plan.estimate,
    }
    write_json(folder.plan_path, kept)
