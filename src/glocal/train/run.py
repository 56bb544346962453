"""From a recipe and a corpus to a model directory.

    check the recipe → labels, companions (`gather`) → resolve the recipe (`planning`)
    → system, loop, best weights, once (`single`) or for each member (`members`)
    → experts' weights, calibration → model directory

Everything random depends on the recipe's seed; an interrupted run resumes to the same result.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from glocal.config import Recipe
from glocal.config.expert_names import ENCODER_KINDS, expert_kinds
from glocal.config.resolve import CheckedRecipe, ResolvedRecipe
from glocal.data.atomic import exclusive
from glocal.data.corpus import Corpus
from glocal.errors import ModelError, Remedy, TrainingError
from glocal.storage.model_directory import StoredModel, save_model
from glocal.train.budget import BudgetWatch
from glocal.train.checkpoint import START_AGAIN, RunFolder
from glocal.train.context import RunContext
from glocal.train.gather import RunInputs, check_recipe, gather_inputs
from glocal.train.listener import TrainListener
from glocal.train.local_engine import LocalEngine, engine_for
from glocal.train.planning import decide
from glocal.train.single import final_outcome, set_up, train_system
from glocal.train.soft_targets import SoftTargets
from glocal.vocabulary.label_table import LabelTable

Arguments = ParamSpec("Arguments")
_LOST = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe|socket", re.IGNORECASE)


@dataclass(frozen=True)
class FitResult:
    """A finished run."""

    path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def _one_at_a_time(fit: Callable[Arguments, FitResult]) -> Callable[Arguments, FitResult]:
    """Let one run at a time write to a model directory; of several processes, the first locks."""

    @functools.wraps(fit)
    def locked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> FitResult:
        out = Path(str(kwargs["out"]))
        check_target(
            out, resume=bool(kwargs.get("resume")), overwrite=bool(kwargs.get("overwrite"))
        )
        with contextlib.ExitStack() as held:
            if os.environ.get("RANK", "0") == "0":
                try:
                    held.enter_context(exclusive(out))
                except BlockingIOError as error:
                    raise ModelError(
                        f"another training is writing to {out} ({error.strerror}); wait for it, or "
                        "choose another place"
                    ) from error
            with _lost_processes(out):
                return fit(*args, **kwargs)

    return locked


@contextlib.contextmanager
def _lost_processes(out: Path) -> Iterator[None]:
    """Report the loss of another process of the run in one line."""
    try:
        yield
    except RuntimeError as error:
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not _LOST.search(str(error)):
            raise
        raise TrainingError(
            f"another process of the run was lost; the last checkpoint in {RunFolder(out).path} is "
            "kept, and any number of processes can go on with it",
            remedies=[Remedy("resume", "continue the run")],
        ) from error


@_one_at_a_time
def fit(
    recipe: Recipe,
    train: Corpus,
    *,
    out: str | Path,
    dev: Corpus | None = None,
    label_table: LabelTable | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    listener: TrainListener | None = None,
    start_engine: Callable[..., Any] | None = None,
    soft: SoftTargets | None = None,
) -> FitResult:
    """Train a system and write its model directory.

    Args:
        recipe: The settings.
        train: Texts with labels.
        out: The model directory to write; until then the run's state is in `OUT.run`.
        dev: Texts that select the best weights, early stopping and the calibration; without them,
            some training texts are held out for the calibration and the decision.
        label_table: Names, descriptions and parents of labels.
        resume: Continue an unfinished run.
        overwrite: Replace an existing model or unfinished run.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; the model of words is trained there too.
        listener: Receives progress events.
        start_engine: Returns where the run computes, in place of `engine_for`.
        soft: A teacher's probabilities, see `glocal.distill`.

    Example:
        >>> from glocal import fit, load_recipe, read_corpus
        >>> result = fit(load_recipe("fast"), read_corpus("train.jsonl"), out="new-model/")
        >>> result.path.name
        'new-model'
    """
    started = time.monotonic()
    target = Path(out)
    checked = check_recipe(recipe, label_table)
    engine: LocalEngine = (start_engine or engine_for)(
        checked.draft, device, encoder=not checked.missing_encoder
    )
    folder = engine.run_folder(target)
    listener = listener if listener is not None and engine.is_main else TrainListener()
    # Again, as another run may have ended here since.
    check_target(target, resume=resume, overwrite=overwrite)
    if not resume and engine.is_main:
        folder.remove()
    engine.wait()
    engine.seed(recipe.train.seed)
    context = RunContext(engine, folder, listener, resume, started)
    watch = BudgetWatch(checked.budget, started, listener.on_message)
    inputs = gather_inputs(
        checked.draft,
        train,
        dev,
        label_table,
        context,
        watch=watch,
        overlap=_leaves_cores_idle(checked, engine),
        soft=soft,
        device=device,
    )
    with contextlib.closing(inputs.later):
        plan = decide(checked, inputs, context)
        members = plan.recipe.train.members
        _check_kind(folder, members=members)
        model = (_train_members if members > 1 else _train_alone)(plan.recipe, inputs, context)
    seconds = time.monotonic() - started
    model.metrics = {**model.metrics, **plan.outcome(seconds, listener)}
    if soft is not None:
        model.metrics["distillation"] = dict(soft.facts)
    engine.join_labels(model.system)
    if engine.is_main:
        save_model(target, model, log=folder.log_path)
        folder.remove()
    engine.wait()
    seconds = time.monotonic() - started
    if engine.is_main:
        listener.on_end({"path": str(target), "seconds": seconds, "metrics": model.metrics})
    return FitResult(target, dict(model.metrics), seconds)


def _train_alone(recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext) -> StoredModel:
    run = set_up(recipe, inputs, context)
    state = train_system(run)
    outcome = final_outcome(run.evaluator, state, held_out=run.held_out)
    tokenizer, labels = run.tokenizer, inputs.labels
    return StoredModel(
        run.system, recipe, labels, tokenizer, **vars(outcome), companions=inputs.all_companions
    )


def _leaves_cores_idle(checked: CheckedRecipe, engine: LocalEngine) -> bool:
    """Whether a network trains on a GPU, and no plan depends on the companions' time."""
    encodes = bool(expert_kinds(checked.draft.experts) & ENCODER_KINDS)
    alone = engine.solvers is None and not checked.is_open
    return encodes and alone and engine.device_type == "cuda"


def _train_members(recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext) -> StoredModel:
    from glocal.train.members import train_members

    return train_members(recipe, inputs, context)


def _check_kind(folder: RunFolder, *, members: int) -> None:
    """Refuse to resume a run of one model as one of several members, and the reverse."""
    if folder.members_path.is_dir() if members == 1 else folder.latest() is not None:
        raise TrainingError(
            f"the unfinished run in {folder.path} had another number of members (train.members), "
            "so it cannot be resumed with this one",
            remedies=[START_AGAIN],
        )


def check_target(target: Path, *, resume: bool, overwrite: bool) -> None:
    """Check that a model can be written to a path.

    Args:
        target: The model directory to write.
        resume: Whether an unfinished run may be there.
        overwrite: Whether a model or an unfinished run may be there.

    Raises:
        ModelError: Something else is there.
    """
    if target.exists() and not target.is_dir():
        raise ModelError(f"{target} is a file; give the path of a new folder")
    if not target.name or target.resolve() == Path.cwd():
        raise ModelError(f"a model cannot replace the folder {target}; give the path of a new one")

    if target.is_dir() and any(target.iterdir()):
        if not (target / "glocal.toml").is_file():
            raise ModelError(
                f"{target} is not empty and not a model directory; choose another place"
            )
        if not overwrite:
            raise ModelError(
                f"{target} already holds a model", remedies=[Remedy("overwrite", "replace it")]
            )
    folder = RunFolder(target)
    if folder.unfinished and not (resume or overwrite):
        raise ModelError(
            f"{folder.path} holds an unfinished run",
            remedies=[Remedy("resume", "continue it"), START_AGAIN],
        )
