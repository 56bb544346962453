"""From a recipe and a corpus to a model directory.

Labels → companions (teacher, sparse model) → tokens → system → loop → best weights → experts'
weights and temperature → saved.
Everything random follows the recipe's seed; an interrupted run goes on with `resume` to the same
result.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.config import Recipe, recipe_to_mapping
from glocal.data.corpus import Corpus
from glocal.data.label_table import LabelTable
from glocal.data.tokens import tokenise
from glocal.errors import ConfigError, ModelError
from glocal.labels.space import LabelSpace
from glocal.predict.evaluation import check_metric_name
from glocal.systems.base import LabelStatistics, System
from glocal.systems.companions import Companions
from glocal.systems.registry import build_system
from glocal.systems.store import StoredModel, save_model
from glocal.train.checkpoint import RunFolder, RunState, seed_everything
from glocal.train.dev import DevEvaluator
from glocal.train.engine import Engine
from glocal.train.gather import extra_rows, gather_companions
from glocal.train.listener import TrainListener
from glocal.train.loop import Loop, TrainingData
from glocal.train.optim import build_optimizer

__all__ = ["FitResult", "fit"]


@dataclass(frozen=True)
class FitResult:
    """A finished run."""

    path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


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
) -> FitResult:
    """Train a system and write its model directory.

    Args:
        recipe: The settings.
        train: Texts with labels.
        out: The model directory to write; the run's state lies in `OUT.run` meanwhile.
        dev: Decides the best weights, early stopping and the temperature.
        label_table: Names, descriptions and parents of labels.
        resume: Go on with an unfinished run.
        overwrite: Replace an existing model or unfinished run.
        device: `auto`, `cpu` or `cuda`.
        listener: Is told what happens.
    """
    started = time.monotonic()
    target = Path(out)
    folder = RunFolder(target)
    engine = Engine(device, recipe.train.precision)
    listener = listener if listener is not None and engine.is_main else TrainListener()
    _check_target(target, folder, resume=resume, overwrite=overwrite)
    check_metric_name(recipe.train.metric)
    seed_everything(recipe.train.seed, 0)
    labels = _label_space(recipe, train, label_table)
    listener.on_message(f"{len(train):,} texts, {len(labels):,} labels; {engine.describe()}")
    vectors, companions = gather_companions(
        recipe, train, labels, label_table, engine=engine, listener=listener
    )
    teaching = companions.teaching
    statistics = LabelStatistics(
        labels.counts,
        labels.n_documents,
        None if teaching is None else teaching.label_vectors(),
    )
    system, tokenizer = build_system(
        recipe, statistics, device_type=engine.device.type, vectors=vectors
    )
    recipe = system.recipe
    data = TrainingData(
        tokenise(train, tokenizer, max_length=recipe.encoder.max_length),
        labels.encode(train),
        tokenizer,
        len(labels),
        extra_rows(companions, train, engine=engine, listener=listener, training=True),
    )
    evaluator = None
    if dev is not None:
        extra = extra_rows(companions, dev, engine=engine, listener=listener)
        evaluator = DevEvaluator(system, data, engine, recipe, labels, dev, extra)
    sets = [
        (train, data.gold),
        *([] if evaluator is None or dev is None else [(dev, evaluator.gold)]),
    ]
    fingerprint = _fingerprint(recipe, engine, sets, companions)
    state = RunState(fingerprint)
    if any(p.requires_grad for p in system.parameters()):
        loop = _prepare_loop(
            recipe,
            system,
            data,
            engine=engine,
            folder=folder,
            evaluator=evaluator,
            listener=listener,
            fingerprint=fingerprint,
            resume=resume,
        )
        _run_loop(loop, recipe)
        state = loop.state
    metrics, temperature = _final_metrics(evaluator, state)
    if engine.is_main:
        model = StoredModel(system, recipe, labels, tokenizer, temperature, metrics, companions)
        save_model(target, model, log=folder.log_path)
        folder.remove()
    engine.wait()
    seconds = time.monotonic() - started
    if engine.is_main:
        listener.on_end({"path": str(target), "seconds": seconds, "metrics": metrics})
    return FitResult(target, metrics, seconds)


def _prepare_loop(
    recipe: Recipe,
    system: System,
    data: TrainingData,
    *,
    engine: Engine,
    folder: RunFolder,
    evaluator: DevEvaluator | None,
    listener: TrainListener,
    fingerprint: str,
    resume: bool,
) -> Loop:
    seed_everything(recipe.train.seed, engine.rank)
    system.to(engine.device)
    optimizer = build_optimizer(system, recipe.train, engine.device)
    loop = Loop(
        system,
        optimizer,
        data,
        config=recipe.train,
        engine=engine,
        folder=folder,
        state=RunState(fingerprint),
        evaluate=evaluator,
        listener=listener,
    )
    if resume and folder.latest() is not None:
        loop.state, loop.average = folder.load(
            system, optimizer, fingerprint=fingerprint, rank=engine.rank
        )
        engine.restore_scaler(loop.state.scaler)
        listener.on_message(f"resuming at step {loop.state.step} of {loop.steps}")
        if engine.is_main:
            folder.cut_log(loop.state.step)
    else:
        if engine.is_main:
            folder.remove()
            folder.path.mkdir(parents=True)
        if resume:
            listener.on_message(f"no checkpoint in {folder.path} yet: starting from the beginning")
        with engine.autocast():
            system.start_labels(loop.every_document())
    engine.wait()
    return loop


def _run_loop(loop: Loop, recipe: Recipe) -> None:
    """Train, and leave the system with the weights that are to be kept."""
    system, engine = loop.system, loop.engine
    if recipe.train.compile:
        system.encoder.compile(dynamic=True)
    elif not recipe.encoder.gradient_checkpointing:
        system.encoder.compute_dtype = engine.compute_dtype
    loop.listener.on_start(
        {
            "step": loop.state.step,
            "steps": loop.steps,
            "epochs": recipe.train.epochs,
            "documents": len(loop.data.tokens),
            "labels": loop.data.n_labels,
            "device": engine.describe(),
        }
    )
    loop.run()
    system.load_state_dict(loop.final_weights())
    system.encoder.compute_dtype = None


def _check_target(target: Path, folder: RunFolder, *, resume: bool, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise ModelError(f"{target} is a file; the model directory needs a place of its own")
    if target.is_dir() and any(target.iterdir()):
        if not (target / "glocal.toml").is_file():
            raise ModelError(
                f"{target} is not empty and not a model directory; choose another place"
            )
        if not overwrite:
            raise ModelError(f"{target} holds a model already; add --overwrite to replace it")
    if folder.latest() is not None and not (resume or overwrite):
        raise ModelError(
            f"{folder.path} holds an unfinished run; add --resume to go on with it, "
            "or --overwrite to start anew"
        )


def _label_space(recipe: Recipe, train: Corpus, table: LabelTable | None) -> LabelSpace:
    config = recipe.labels
    if config.score_unseen and table is None:
        raise ConfigError("'labels.score_unseen' needs a label table: give one with --labels")
    return LabelSpace.build(
        train, table=table, min_count=config.min_count, score_unseen=config.score_unseen
    )


def _fingerprint(
    recipe: Recipe,
    engine: Engine,
    sets: Sequence[tuple[Corpus, Any]],
    companions: Companions,
) -> str:
    """What must be the same for a run to be resumed: settings, processes, texts and labels."""
    settings = [recipe_to_mapping(recipe), engine.world, engine.precision]
    settings += companions.fingerprints()
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for corpus, gold in sets:
        digest.update(f"{corpus.fingerprint()} {gold.shape}".encode())
        digest.update(np.ascontiguousarray(gold.indptr).tobytes())
        digest.update(np.ascontiguousarray(gold.indices).tobytes())
    return digest.hexdigest()


def _final_metrics(evaluator: DevEvaluator | None, state: RunState) -> tuple[dict[str, Any], float]:
    metrics: dict[str, Any] = {
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "train_seconds": round(state.seconds, 1),
        "evaluations": state.evaluations,
    }
    if evaluator is None:
        return metrics, 1.0
    with torch.no_grad():
        scores, temperature = evaluator.final()
    return metrics | scores, temperature
