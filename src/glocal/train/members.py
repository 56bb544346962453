"""A model of several members: trained one after another from different seeds, stored as one.

- the label space, the companions and the tokens are made once for all members;
- a finished member stays in `OUT.run/members/NUMBER`, the one in training has its checkpoints next
  to it: a run that was killed resumes where it was and trains no member twice;
- the experts' weights and the calibration are learned on dev from the members' mean log-odds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from glocal.config.resolve import ResolvedRecipe
from glocal.data.atomic import atomic_write, replace_dir, temporary_dir
from glocal.errors import TrainingError
from glocal.storage.model_directory import StoredModel
from glocal.storage.tensors import write_tensors
from glocal.systems.mixture_ensemble import MixtureEnsemble
from glocal.systems.system import System
from glocal.train.checkpoint import START_AGAIN, RunFolder, RunState, read_state
from glocal.train.context import RunContext
from glocal.train.dev import DevEvaluator, Outcome
from glocal.train.engine import Engine
from glocal.train.gather import RunInputs
from glocal.train.listener import TrainListener
from glocal.train.single import SingleRun, build_trainable, final_outcome, set_up, train_system


def train_members(recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext) -> StoredModel:
    """Train every member that is not finished yet, and join them into one model.

    Args:
        recipe: A recipe with `train.members` above 1.
        inputs: Texts, labels and companions, which the members share.
        context: Where the whole run computes, keeps its state and reports.
    """
    folder, count = context.folder, recipe.train.members
    members, states = [], []
    for number in range(count):
        numbered = _Numbered(context.listener, number + 1, count)
        kept = _Kept(folder.members_path / str(number))
        own = replace(
            context,
            engine=context.engine.fresh(),
            folder=RunFolder(kept.path),
            listener=numbered,
        )
        run = set_up(recipe.member(number), inputs, own)
        assert isinstance(run.system, System)
        system = run.system
        state = kept.read_state(run.fingerprint)
        if state is None:
            state = _train_member(run, kept, numbered)
            # Built again, without what training has wrapped and recorded.
            system, _ = build_trainable(run.recipe, inputs, own)
        else:
            numbered.on_message(f"member {number + 1} of {count} is finished already")
        kept.load_weights(system)
        members.append(system)
        states.append(state)
    assert isinstance(own.engine, Engine)
    ensemble = MixtureEnsemble(members).to(own.engine.device)
    outcome = _measure(ensemble, run, inputs, states)
    if own.engine.is_main:
        _join_logs(folder, count)
    tokenizer, labels = run.tokenizer, inputs.labels
    return StoredModel(
        ensemble, recipe, labels, tokenizer, **vars(outcome), companions=inputs.all_companions
    )


def _train_member(run: SingleRun, kept: _Kept, listener: _Numbered) -> RunState:
    engine, folder = run.context.engine, run.context.folder
    listener.on_message(f"{listener.title}, seed {run.recipe.train.seed}")
    state = train_system(run)
    if engine.is_main:
        assert isinstance(run.system, System)
        kept.save(run.system, state, folder.log_path)
        folder.remove()
    engine.wait()
    return state


@dataclass(frozen=True)
class _Kept:
    """A finished member on disk: its weights, its state and its log."""

    path: Path

    def save(self, system: System, state: RunState, log: Path) -> None:
        with temporary_dir(self.path) as folder:
            write_tensors(system.state_dict(), folder / "model.safetensors")
            (folder / "state.json").write_text(json.dumps(vars(state)), encoding="utf-8")
            if log.is_file():
                shutil.copyfile(log, folder / "train_log.jsonl")
            replace_dir(folder, self.path)

    def read_state(self, fingerprint: str) -> RunState | None:
        """Return the final state of the member; None where it is not finished.

        Raises:
            TrainingError: It belongs to another run, or cannot be read.
        """
        if not self.path.is_dir():
            return None
        try:
            return read_state(self.path, fingerprint, about=f"the finished member in {self.path}")
        except (OSError, ValueError, TypeError) as error:
            raise self._unreadable(error) from error

    def load_weights(self, system: System) -> None:
        try:
            system.load_state_dict(load_file(self.path / "model.safetensors"))
        except (OSError, RuntimeError, SafetensorError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> TrainingError:
        return TrainingError(
            f"the finished member in {self.path} cannot be read: {error}; delete that folder and "
            "resume the run to train this member again",
            remedies=[START_AGAIN],
        )


def _measure(
    ensemble: MixtureEnsemble, run: SingleRun, inputs: RunInputs, states: list[RunState]
) -> Outcome:
    """Measure all members together, with fitted weights, and keep what each one reached."""
    evaluator = None
    if run.evaluator is not None:
        evaluator = DevEvaluator(
            ensemble,
            run.evaluator.documents,
            inputs.labels,
            engine=run.context.engine,
            recipe=run.recipe,
            later=inputs.later,
        )
    together = RunState(
        run.fingerprint,
        step=sum(state.step for state in states),
        seconds=sum(state.seconds for state in states),
    )
    outcome = final_outcome(evaluator, together, held_out=run.held_out)
    apart = [final_outcome(None, state).metrics for state in states]
    return replace(outcome, metrics={**outcome.metrics, "members": apart})


def _join_logs(folder: RunFolder, count: int) -> None:
    """Join the members' logs into one, each line with its member's number."""
    with atomic_write(folder.log_path) as file:
        for number in range(count):
            path = folder.members_path / str(number) / "train_log.jsonl"
            for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
                file.write(json.dumps({"member": number, **json.loads(line)}).encode() + b"\n")


class _Numbered(TrainListener):
    """Passes events on with the member's number."""

    def __init__(self, listener: TrainListener, number: int, count: int) -> None:
        self.listener, self.title = listener, f"member {number} of {count}"

    def on_start(self, info: Mapping[str, Any]) -> None:
        self.listener.on_start({**info, "member": self.title})

    def on_step(self, info: Mapping[str, Any]) -> None:
        self.listener.on_step({**info, "member": self.title})

    def on_evaluation(self, info: Mapping[str, Any]) -> None:
        self.listener.on_evaluation({**info, "member": self.title})

    def on_message(self, text: str) -> None:
        self.listener.on_message(text)
