"""What a run fits on the raw texts before the encoder is trained: a teacher, the sparse model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from glocal.config import Recipe
from glocal.data.corpus import Corpus
from glocal.data.label_table import LabelTable
from glocal.labels.space import LabelSpace
from glocal.systems.companions import Companions, fit_sparse
from glocal.systems.teaching import teach, word_vectors
from glocal.train.engine import Engine
from glocal.train.listener import TrainListener

if TYPE_CHECKING:
    import numpy as np

    from glocal.encoders.static import StaticVectors

__all__ = ["extra_rows", "gather_companions"]

_TOLD_SECONDS = 10.0  # between messages


def gather_companions(
    recipe: Recipe,
    train: Corpus,
    labels: LabelSpace,
    table: LabelTable | None,
    *,
    engine: Engine,
    listener: TrainListener,
) -> tuple[StaticVectors | None, Companions]:
    """Word vectors, and the teacher and the sparse model of the training texts, if the recipe asks.

    The first process fits the sparse model, the others find it in the cache.
    """
    passes = _telling(listener, "word vectors trained, passes")
    vectors = word_vectors(recipe, train, table, progress=passes)
    embedded = _telling(listener, "texts taken in by the teacher")
    teaching = teach(recipe, train, labels, table, vectors, progress=embedded)
    if not engine.is_main:
        engine.wait()
    sparse = fit_sparse(recipe, train, labels, progress=_telling_what(listener))
    if engine.is_main:
        engine.wait()
    return vectors, Companions(teaching, sparse)


def extra_rows(
    companions: Companions,
    corpus: Corpus,
    *,
    engine: Engine,
    listener: TrainListener,
    training: bool = False,
) -> dict[str, np.ndarray]:
    """What batches hold besides tokens; one process computes it, the others find it cached."""
    if not engine.is_main:
        engine.wait()
    find = companions.training_rows if training else companions.rows
    rows = find(corpus, progress=_telling(listener, "texts looked at beforehand"))
    if engine.is_main:
        engine.wait()
    return rows


def _telling(listener: TrainListener, what: str) -> Callable[[int, int], None]:
    """Tells now and then how far something is that takes long."""
    tell = _telling_what(listener)
    return lambda done, total: tell(what, done, total)


def _telling_what(listener: TrainListener) -> Callable[[str, int, int], None]:
    told = time.monotonic()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= _TOLD_SECONDS:
            told = time.monotonic()
            listener.on_message(f"{what}: {done:,} of {total:,}")

    return progress
