"""One system, from the inputs of a run to its best weights.

    recipe + inputs → system, tokens, dev evaluation → loop → best weights

A run trains one of these, or one for each member.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.companions.companion_list import Companions
from glocal.config import recipe_to_mapping
from glocal.config.resolve import ResolvedRecipe
from glocal.config.rules import LEAN_LABELS
from glocal.data.batches import Collator
from glocal.data.corpus import Corpus
from glocal.data.tokens import tokenise
from glocal.encoders.tokenizer import TextTokenizer
from glocal.encoders.word_tokenizer import NoTokenizer
from glocal.errors import TrainingError
from glocal.ranking.document_ranker import DocumentRanker
from glocal.ranking.words_ranker import WordsRanker
from glocal.train.checkpoint import RunState, seed_everything
from glocal.train.context import RunContext, throttled_progress
from glocal.train.dev import DevEvaluator, Outcome
from glocal.train.gather import RunInputs
from glocal.train.local_engine import LocalEngine, engine_for
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.storage.model_directory import StoredModel
    from glocal.systems.system import System
    from glocal.train.loop import Loop

_LEVELLED = 512  # training texts over which labels without any are levelled


@dataclass(frozen=True)
class SingleRun:
    """A system about to be trained, with its data.

    Attributes:
        recipe: The settings.
        system: The system with its initial weights.
        tokenizer: The encoder's tokenizer.
        data: The training texts.
        evaluator: Scores on dev; None without dev.
        held_out: Whether dev was held out of the training texts: then it chooses no checkpoint.
        fingerprint: Identifies the run: it must be equal for the run to be resumed.
        context: Where the run computes, keeps its state and reports.
    """

    recipe: ResolvedRecipe
    system: DocumentRanker
    tokenizer: TextTokenizer
    data: Collator
    evaluator: DevEvaluator | None
    held_out: bool
    fingerprint: str
    context: RunContext


def set_up(recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext) -> SingleRun:
    """Build a recipe's system, and the data it is trained and evaluated on."""
    labels, engine = inputs.labels, context.engine
    system, tokenizer = build(recipe, inputs, context)

    def collated(corpus: Corpus, features: Mapping[str, np.ndarray]) -> Collator:
        return documents(recipe, system, tokenizer, labels, corpus, features=features)

    data = replace(collated(inputs.train, inputs.train_features), targets=inputs.targets)
    evaluator = None
    sets = [(inputs.train, data.gold)]
    if (dev := inputs.dev) is not None:
        collator = collated(dev, inputs.dev_features)
        evaluator = DevEvaluator(
            system, collator, labels, engine=engine, recipe=recipe, later=inputs.later
        )
        sets.append((dev, evaluator.gold))
    fingerprint = _fingerprint(recipe, engine, sets, inputs.companions, inputs.targets)
    held_out = inputs.held_out
    return SingleRun(recipe, system, tokenizer, data, evaluator, held_out, fingerprint, context)


def documents(
    recipe: ResolvedRecipe,
    system: DocumentRanker,
    tokenizer: TextTokenizer,
    labels: LabelSpace,
    corpus: Corpus,
    *,
    features: Mapping[str, np.ndarray],
) -> Collator:
    """Return labelled texts as a system reads them; `features` are those of its companions."""
    return Collator(
        tokenise(corpus, tokenizer, max_length=recipe.encoder.tokens_read),
        tokenizer.facts,
        gold=labels.encode(corpus),
        n_labels=len(labels),
        companion_features=features,
        chunking=system.chunking,
    )


def stored_evaluator(
    model: StoredModel, dev: Corpus, features: Mapping[str, np.ndarray], device: str
) -> DevEvaluator:
    """Return the scores on dev of a stored model, with the features of its companions."""
    system, labels = model.system, model.labels
    collated = documents(model.recipe, system, model.tokenizer, labels, dev, features=features)
    engine = engine_for(model.recipe, device)
    return DevEvaluator(system, collated, labels, engine=engine, recipe=model.recipe)


def build(
    recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext
) -> tuple[DocumentRanker, TextTokenizer]:
    """Return a recipe's system, and its tokenizer; words alone need neither torch nor weights."""
    if recipe.reads_words_alone:
        return WordsRanker(inputs.labels.counts), NoTokenizer()
    return build_trainable(recipe, inputs, context)


def build_trainable(
    recipe: ResolvedRecipe, inputs: RunInputs, context: RunContext
) -> tuple[System, TextTokenizer]:
    """Return the system of a recipe with an encoder, with its initial weights."""
    from glocal.systems.registry import build_system
    from glocal.systems.system import LabelStatistics

    labels = inputs.labels
    statistics = LabelStatistics(
        labels.counts,
        labels.n_documents,
        inputs.companions.label_vectors(),
        inputs.label_texts,
        here=context.engine.label_slice,
    )
    seed_everything(recipe.train.seed, 0)
    return build_system(
        recipe,
        statistics,
        device_type=context.engine.device_type,
        vectors=inputs.vectors,
        progress=throttled_progress(context.listener)("label texts encoded"),
    )


def train_system(run: SingleRun) -> RunState:
    """Train the system and leave it with its best weights; return the final state."""
    if run.recipe.reads_words_alone:
        return RunState(run.fingerprint)
    import torch

    from glocal.systems.system import System

    assert isinstance(run.system, System)
    if not any(p.requires_grad for p in run.system.parameters()):
        return RunState(run.fingerprint)
    try:
        loop = _prepare_loop(run, run.system)
        _run_loop(loop, run.recipe)
    except torch.OutOfMemoryError as error:
        raise _out_of_memory(run) from error
    return loop.state


def _out_of_memory(run: SingleRun) -> TrainingError:
    """Name the settings that take less memory, and what is kept of the run."""
    train, saved = run.recipe.train, run.context.folder.latest()
    settings = [f"train.batch_size={max(1, train.batch_size // 2)}"]
    if run.recipe.candidates.mode != "clusters":  # which has fp32 labels alone
        lean = [] if train.label_precision in LEAN_LABELS else ["train.label_precision=bf16"]
        settings += [*lean, "candidates.mode=clusters"]
    kept = f" (the last checkpoint is kept: {saved})" if saved else ""
    return TrainingError(
        f"the device ran out of memory with batches of {train.batch_size} texts and "
        f"{run.system.n_labels} labels; set {', '.join(settings)} or document.head=aplc{kept}"
    )


def final_outcome(
    evaluator: DevEvaluator | None, state: RunState, *, held_out: bool = False
) -> Outcome:
    """Return what is stored about a run beside its weights, scores on dev included.

    Args:
        evaluator: Scores on dev.
        state: The final state of the run.
        held_out: Whether dev was held out of the training texts; its scores have other names then.
    """
    metrics: dict[str, Any] = {
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "train_seconds": round(state.seconds, 1),
        "evaluations": state.evaluations,
    }
    if evaluator is None:
        return Outcome(metrics)
    outcome = evaluator.final()
    scores = outcome.metrics
    if held_out:
        scores = {name.replace("dev", "held_out"): value for name, value in scores.items()}
        scores["held_out_texts"] = len(evaluator.documents)
    return replace(outcome, metrics=metrics | scores)


def _prepare_loop(run: SingleRun, system: System) -> Loop:
    from glocal.train.engine import Engine
    from glocal.train.loop import Loop
    from glocal.train.optim import build_optimizer
    from glocal.train.row_updates import round_label_matrices

    context, config = run.context, run.recipe.train
    engine, folder, listener = context.engine, context.folder, context.listener
    assert isinstance(engine, Engine), "an encoder is trained with torch"
    seed_everything(config.seed, engine.rank)
    engine.begin(system)
    if config.label_precision in LEAN_LABELS:
        # Before they take memory on the device.
        round_label_matrices(system, config.label_precision)
    system.to(engine.device)
    optimizer = build_optimizer(system, config, engine.device)
    loop = Loop(
        system,
        optimizer,
        run.data,
        config=config,
        context=context,
        state=RunState(run.fingerprint),
        evaluate=None if run.held_out else run.evaluator,
    )
    if context.resume and folder.latest() is not None:
        loop.state, loop.average = folder.load(
            system, optimizer, fingerprint=run.fingerprint, rank=engine.rank
        )
        if loop.state.steps not in (0, loop.steps):
            raise TrainingError(
                f"the unfinished run in {folder.path} has {loop.state.steps} steps, and with "
                f"{engine.world} processes it would have {loop.steps}; resume it with as many "
                "processes as before"
            )
        engine.restore_scaler(loop.state.scaler)
        listener.on_message(f"resuming at step {loop.state.step} of {loop.steps}")
        if engine.is_main:
            folder.cut_log(loop.state.step)
    else:
        if engine.is_main:
            folder.clear()
        if context.resume:
            listener.on_message(f"no checkpoint in {folder.path} yet: starting from the beginning")
        system.arrange_labels(run.data)
        with engine.autocast(), engine.whole(system):
            system.init_label_parameters(loop.documents())
    engine.wait()
    return loop


def _run_loop(loop: Loop, recipe: ResolvedRecipe) -> None:
    from glocal.train.row_updates import widen_label_matrices

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
            "documents": len(loop.data),
            "labels": loop.data.n_labels,
            "device": engine.describe(),
        }
    )
    loop.run()
    weights = loop.final_weights()
    engine.end(system)
    widen_label_matrices(system)
    system.load_state_dict(weights)
    system.encoder.compute_dtype = None
    with engine.autocast():
        system.level_untaught(loop.documents(_LEVELLED))


def _fingerprint(
    recipe: ResolvedRecipe,
    engine: LocalEngine,
    sets: Sequence[tuple[Corpus, Any]],
    companions: Companions,
    targets: Any = None,
) -> str:
    """Return a hash of all that a resumed run must share: settings, texts, labels."""
    settings = [recipe_to_mapping(recipe), engine.precision]
    settings += companions.fingerprints()
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for corpus, gold in sets:
        digest.update(f"{corpus.fingerprint()} {gold.shape}".encode())
        digest.update(np.ascontiguousarray(gold.indptr).tobytes())
        digest.update(np.ascontiguousarray(gold.indices).tobytes())
    if targets is not None:
        digest.update(targets.indices.tobytes() + targets.data.tobytes())
    return digest.hexdigest()
