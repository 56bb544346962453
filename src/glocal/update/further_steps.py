"""Further steps of a trained network on new texts, with training texts replayed among them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from glocal.config.resolve import ResolvedRecipe
from glocal.data.corpus import Corpus
from glocal.errors import Interrupted, ModelError
from glocal.ranking.ranker import Ranker
from glocal.storage.model_directory import StoredModel
from glocal.systems.mixture_ensemble import mixtures_of
from glocal.train.checkpoint import RunFolder
from glocal.train.context import RunContext
from glocal.train.listener import TrainListener
from glocal.train.local_engine import engine_for
from glocal.train.single import SingleRun, documents, train_system
from glocal.update.expert_rows import changed_system
from glocal.vocabulary.label_change import LabelChange

_REPLAYED, _REPLAYED_FOR_EACH = 1000, 2  # training texts: at least, and for each new one
_EPOCHS = 3
_RATE = 0.5  # learning rates, in multiples of those of the training
_WARMUP = 0.1  # the optimizer knows nothing of the earlier steps


class _ShortRun(RunFolder):
    """The folder of a run that is too short to be resumed: it keeps no checkpoints."""

    def save(self, *_values: Any, **_named: Any) -> None:
        """Write nothing."""


def trained_further(
    folder: Path,
    model: StoredModel,
    change: LabelChange,
    *,
    device: str,
    listener: TrainListener,
) -> Ranker:
    """Return the system of a model after further steps on the examples of a change.

    Args:
        folder: The model directory.
        model: The model before.
        change: The new labels, the texts to learn and the texts to replay.
        device: Where it is trained.
        listener: Receives progress events.

    Raises:
        Interrupted: It was stopped; nothing is kept.
        ModelError: No training texts are given, or the labels of such a system cannot be changed.
    """
    if change.train is None or not len(change.train):
        raise ModelError(
            "a model with an encoder keeps no training texts, and without them it would forget "
            "what it knows; give the texts it was trained on as well, or some of them"
        )
    assert change.examples is not None
    system = changed_system(folder, model, change, device=device)
    corpus = _with_replay(change.examples, change.train, seed=model.recipe.train.seed)
    recipe = _settings(model.recipe)
    engine = engine_for(recipe, device)
    engine.seed(recipe.train.seed)
    with tempfile.TemporaryDirectory(prefix="glocal-") as state:
        for number, mixture in enumerate(mixtures_of(system)):
            folder_of_run = _ShortRun(Path(state) / str(number))
            data = documents(recipe, mixture, model.tokenizer, change.after, corpus, features={})
            context = RunContext(engine.fresh(), folder_of_run, listener)
            run = SingleRun(
                recipe,
                mixture,
                model.tokenizer,
                data,
                evaluator=None,
                held_out=True,
                fingerprint="",
                context=context,
                continues=True,
            )
            try:
                train_system(run)
            except Interrupted as error:
                raise Interrupted(
                    "stopped; the model is as it was, and nothing of the texts is learnt"
                ) from error
            mixture.cpu().eval()
    return system


def _with_replay(texts: Corpus, train: Corpus, *, seed: int) -> Corpus:
    most = max(_REPLAYED, _REPLAYED_FOR_EACH * len(texts))
    replayed = train.take(np.sort(np.random.default_rng(seed).permutation(len(train))[:most]))
    return Corpus.from_texts(
        [*texts.texts(), *replayed.texts()], [*texts.labels(), *replayed.labels()]
    )


def _settings(recipe: ResolvedRecipe) -> ResolvedRecipe:
    train = recipe.train
    return replace(
        recipe,
        train=replace(
            train,
            epochs=min(_EPOCHS, train.epochs),
            rates={group: _RATE * rate for group, rate in train.rates.items()},
            warmup=max(_WARMUP, train.warmup),
        ),
    )
