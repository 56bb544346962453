"""What a recipe leaves open, decided after its texts are read and before its encoder is trained.

- open are `experts = ["auto"]`, `train.epochs = 0`, `train.members = 0`, as in the preset `auto`;
  a `train.budget` makes the epochs of any recipe a ceiling. Whatever else a recipe says stays;
- the sparse expert and the teacher are fitted by then, so that their time is known; what an encoder
  takes is measured (`measure`), and the decision is made elsewhere (`budget`);
- the decision lies in `OUT.run/plan.json`: a resumed run keeps to it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glocal.config import Recipe, load_recipe, recipe_from_mapping, recipe_to_mapping
from glocal.config.expert_names import OPEN_EXPERTS, SPARSE_EXPERT, TEACHER
from glocal.data.atomic import atomic_write
from glocal.data.corpus import Corpus
from glocal.encoders.no_encoder import NO_ENCODER
from glocal.errors import TrainingError
from glocal.train.budget import Choice, Situation, Speed, Wish, choose, format_seconds, parse_budget
from glocal.train.checkpoint import START_AGAIN, RunFolder
from glocal.train.engine import Engine
from glocal.train.gather import RunInputs
from glocal.train.listener import TrainListener
from glocal.train.measure import measure

__all__ = ["Plan", "decide", "provisional"]

_COUNTED = 2000  # texts whose words are counted
_TRIAL_SECONDS = 20.0  # what trying an encoder may take on a CPU, and so the least left for it


@dataclass(frozen=True)
class Plan:
    """A recipe with nothing left open, and how that came about.

    Attributes:
        recipe: The settings.
        lines: What was chosen and why; empty where nothing was open.
        budget: Seconds the run may take; None for any.
        estimate: Seconds the whole run was thought to take.
    """

    recipe: Recipe
    lines: tuple[str, ...] = ()
    budget: float | None = None
    estimate: float = 0.0

    def outcome(self, seconds: float, listener: TrainListener) -> dict[str, Any]:
        """What is stored about the plan; a run that took too long is told so."""
        if not self.lines:
            return {}
        if self.budget is not None and seconds > self.budget:
            listener.on_message(
                f"the run took {format_seconds(seconds)}, more than the budget of "
                f"{format_seconds(self.budget)}"
            )
        times = {"budget": self.budget, "estimate": self.estimate, "seconds": round(seconds, 1)}
        return {"plan": {"lines": list(self.lines), **times}}


def provisional(recipe: Recipe) -> Recipe:
    """The recipe with a preset's word where it leaves something open; a wrong budget is refused."""
    parse_budget(recipe.train.budget)
    usual, train = load_recipe("balanced"), recipe.train
    return replace(
        recipe,
        experts=usual.experts if recipe.experts == OPEN_EXPERTS else recipe.experts,
        train=replace(
            train,
            epochs=train.epochs or usual.train.epochs,
            members=train.members or 1,
            budget="",
        ),
    )


def decide(
    recipe: Recipe,
    inputs: RunInputs,
    *,
    folder: RunFolder,
    engine: Engine,
    started: float,
    listener: TrainListener,
) -> Plan:
    """Settle what is open.

    Args:
        recipe: As the user gave it.
        inputs: What was gathered for its provisional form.
        folder: Of the run; holds an earlier decision where a run is resumed.
        engine: Where it computes.
        started: When the run began, on the monotonic clock.
        listener: Is told the decision.
    """
    if not _is_open(recipe) and not recipe.train.budget:
        return Plan(recipe)
    plan = _read(folder, recipe)
    if plan is None:
        found = _plan(recipe, inputs, folder, engine=engine, started=started)
        plan = engine.gather([found])[0]  # of all processes, the first one's word counts
        if engine.is_main:
            _write(folder, recipe, plan)
    for line in plan.lines:
        listener.on_message(line)
    return plan


def _is_open(recipe: Recipe) -> bool:
    return recipe.experts == OPEN_EXPERTS or not recipe.train.epochs or not recipe.train.members


def _plan(
    recipe: Recipe, inputs: RunInputs, folder: RunFolder, *, engine: Engine, started: float
) -> Plan:
    usual, budget = provisional(recipe), parse_budget(recipe.train.budget)
    wish, left = _wish(recipe, usual), (budget or math.inf) - (time.monotonic() - started)
    if recipe.experts == OPEN_EXPERTS and recipe.encoder.name == NO_ENCODER:
        speed: Speed | str = "the recipe has no encoder (encoder.name)"
    elif not set(usual.experts) - {SPARSE_EXPERT, TEACHER}:
        speed = f"nothing in the experts {', '.join(usual.experts)} is trained in epochs"
    elif left < _TRIAL_SECONDS and not wish.experts:
        speed = "too little of the budget is left to try an encoder"
    else:
        speed = measure(usual, inputs, engine, folder)
    situation = _situation(inputs, engine, budget, time.monotonic() - started)
    choice = choose(situation, speed, wish)
    settled = _settled(recipe, usual, choice)
    return Plan(settled, choice.lines, budget, round(situation.spent + choice.seconds, 1))


def _wish(recipe: Recipe, usual: Recipe) -> Wish:
    train = recipe.train
    another_encoder = recipe.encoder.name not in {load_recipe("auto").encoder.name, NO_ENCODER}
    return Wish(
        experts=recipe.experts != OPEN_EXPERTS or another_encoder,
        epochs=0 if train.budget else train.epochs,
        ceiling=usual.train.epochs,
        members=train.members,
    )


def _settled(recipe: Recipe, usual: Recipe, choice: Choice) -> Recipe:
    if choice.preset == "fast" and recipe.experts == OPEN_EXPERTS:
        fast = load_recipe("fast")
        encoder = replace(recipe.encoder, name=fast.encoder.name)
        return replace(usual, experts=fast.experts, encoder=encoder)
    train = replace(usual.train, epochs=choice.epochs or usual.train.epochs, members=choice.members)
    return replace(usual, train=train)


def _situation(inputs: RunInputs, engine: Engine, budget: float | None, spent: float) -> Situation:
    train, labels = inputs.train, inputs.labels
    return Situation(
        texts=len(train),
        labels=len(labels),
        labels_per_text=float(labels.counts.sum() / max(1, len(train))),
        words=_words(train),
        machine=f"{engine.describe()}{_memory()}",
        gpu=engine.device.type == "cuda",
        budget=budget,
        spent=spent,
    )


def _words(train: Corpus) -> tuple[int, int]:
    """The median, and what 95 in 100 texts stay below."""
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


def _read(folder: RunFolder, recipe: Recipe) -> Plan | None:
    """What was decided for this very recipe before it was interrupted."""
    if not folder.plan_path.is_file():
        return None
    try:
        kept: Mapping[str, Any] = json.loads(folder.plan_path.read_text("utf-8"))
        if kept["asked"] != recipe_to_mapping(recipe):
            return None
        settled = recipe_from_mapping(kept["recipe"], source=str(folder.plan_path))
        return Plan(settled, tuple(kept["lines"]), kept["budget"], kept["estimate"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"the plan in {folder.plan_path} cannot be read: {error}", remedies=[START_AGAIN]
        ) from error


def _write(folder: RunFolder, recipe: Recipe, plan: Plan) -> None:
    kept = {
        "asked": recipe_to_mapping(recipe),
        "recipe": recipe_to_mapping(plan.recipe),
        "lines": plan.lines,
        "budget": plan.budget,
        "estimate": plan.estimate,
    }
    with atomic_write(folder.plan_path) as file:
        file.write(json.dumps(kept, indent=2).encode() + b"\n")
