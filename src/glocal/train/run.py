"""From a recipe and a corpus to a model directory.

Labels → tokens → system → loop → best weights → temperature → saved. Everything random follows the
recipe's seed; an interrupted run goes on with `resume` to the same result.
"""

from __future__ import annotations

import contextlib
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
from glocal.data.tokens import TokenStore, tokenise
from glocal.errors import ConfigError, DataError, ModelError
from glocal.labels.space import LabelSpace
from glocal.predict.calibration import fit_temperature_to
from glocal.predict.documents import score_documents
from glocal.predict.evaluation import check_metric_name, evaluate_predictions, metric_value
from glocal.predict.predictions import Predictions
from glocal.systems.base import LabelStatistics, System
from glocal.systems.registry import build_system
from glocal.systems.store import StoredModel, save_model
from glocal.train.checkpoint import RunFolder, RunState, seed_everything
from glocal.train.engine import Engine
from glocal.train.listener import TrainListener
from glocal.train.loop import Loop, TrainingData
from glocal.train.optim import build_optimizer

__all__ = ["FitResult", "fit"]

_DEV_K = 20  # labels per dev document looked at for metrics and the temperature
_REPORTED = ("P@1", "P@3", "P@5", "nDCG@5")


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
    statistics = LabelStatistics(labels.counts, labels.n_documents)
    system, tokenizer = build_system(recipe, statistics, device_type=engine.device.type)
    recipe = system.recipe
    listener.on_message(f"{len(train):,} texts, {len(labels):,} labels; {engine.describe()}")
    length = recipe.encoder.max_length
    data = TrainingData(
        tokenise(train, tokenizer, max_length=length), labels.encode(train), tokenizer, len(labels)
    )
    evaluator = None
    if dev is not None:
        evaluator = _Evaluator(system, data, engine, recipe, labels, dev)
    sets = [
        (train, data.gold),
        *([] if evaluator is None or dev is None else [(dev, evaluator.gold)]),
    ]
    loop = _prepare_loop(
        recipe,
        system,
        data,
        engine=engine,
        folder=folder,
        evaluator=evaluator,
        listener=listener,
        fingerprint=_fingerprint(recipe, engine, sets),
        resume=resume,
    )
    if recipe.train.compile:
        system.encoder.compile(dynamic=True)
    elif not recipe.encoder.gradient_checkpointing:
        system.encoder.compute_dtype = engine.compute_dtype
    listener.on_start(
        {
            "step": loop.state.step,
            "steps": loop.steps,
            "epochs": recipe.train.epochs,
            "documents": len(train),
            "labels": len(labels),
            "device": engine.describe(),
        }
    )
    loop.run()
    system.load_state_dict(loop.final_weights())
    system.encoder.compute_dtype = None
    metrics, temperature = _final_metrics(evaluator, loop.state)
    if engine.is_main:
        model = StoredModel(system, recipe, labels, tokenizer, temperature, metrics)
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
    evaluator: _Evaluator | None,
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


def _fingerprint(recipe: Recipe, engine: Engine, sets: Sequence[tuple[Corpus, Any]]) -> str:
    """What must be the same for a run to be resumed: settings, processes, texts and labels."""
    settings = [recipe_to_mapping(recipe), engine.world, engine.precision]
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for corpus, gold in sets:
        digest.update(f"{corpus.fingerprint()} {gold.shape}".encode())
        digest.update(np.ascontiguousarray(gold.indptr).tobytes())
        digest.update(np.ascontiguousarray(gold.indices).tobytes())
    return digest.hexdigest()


class _Evaluator:
    """Scores on dev, shared out among the processes."""

    def __init__(
        self,
        system: System,
        data: TrainingData,
        engine: Engine,
        recipe: Recipe,
        labels: LabelSpace,
        dev: Corpus,
    ) -> None:
        self.system, self.engine, self.recipe, self.labels = system, engine, recipe, labels
        self.tokenizer = data.tokenizer
        self.tokens: TokenStore = tokenise(
            dev, data.tokenizer, max_length=recipe.encoder.max_length
        )
        self.gold = labels.encode(dev)
        if not self.gold.nnz:
            raise DataError(
                f"none of the {len(dev)} dev texts has labels, so no weights can be chosen by it; "
                "check its labels column, or train without it",
                path=dev.source,
            )

    def predictions(self, *, exact: bool = False) -> dict[str, Predictions]:
        """Top labels of every dev document, the same in every process; `exact` in fp32."""
        engine = self.engine
        per_expert = len(self.system.expert_names) > 1
        mine = np.arange(engine.rank, len(self.tokens), engine.world)
        found = score_documents(
            self.system,
            self.tokens,
            self.tokenizer,
            k=_DEV_K,
            batch_size=2 * self.recipe.train.batch_size,
            positions=mine,
            per_expert=per_expert,
            autocast=contextlib.nullcontext if exact else engine.autocast,
        )
        if engine.world == 1:
            return found
        pieces = engine.gather([(mine, found)])
        order = np.argsort(np.concatenate([positions for positions, _ in pieces]))
        return {
            name: Predictions.concat([piece[name] for _, piece in pieces]).take(order)
            for name in found
        }

    def __call__(self) -> dict[str, dict[str, float]]:
        names = dict.fromkeys([*_REPORTED, self.recipe.train.metric])
        return {
            part: {name: self._value(name, predictions) for name in names}
            for part, predictions in self.predictions().items()
        }

    def _value(self, name: str, predictions: Predictions) -> float:
        counts, n_train = self.labels.counts, self.labels.n_documents
        return metric_value(name, predictions, self.gold, counts=counts, n_train=n_train)

    def final(self) -> tuple[dict[str, Any], float]:
        """The full report and the temperature of the chosen weights."""
        found = self.predictions(exact=True)
        temperature = fit_temperature_to(found["combined"], self.gold)
        report = evaluate_predictions(
            found, self.gold, counts=self.labels.counts, n_train=self.labels.n_documents
        )
        return report.to_dict(), temperature


def _final_metrics(evaluator: _Evaluator | None, state: RunState) -> tuple[dict[str, Any], float]:
    metrics: dict[str, Any] = {
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "train_seconds": round(state.seconds, 1),
        "evaluations": state.evaluations,
    }
    if evaluator is None:
        return metrics, 1.0
    with torch.no_grad():
        report, temperature = evaluator.final()
    best = max(state.evaluations, key=lambda e: int(e["step"] == state.best_step), default=None)
    metrics["dev"] = {"combined": {}} if best is None else best["scores"]
    metrics["dev_report"] = report
    return metrics, temperature
