"""Ensembles: several saved models vote, one in memory at a time.

- pass 1: each model gives its best `pool` labels of every text; their union is the text's pool;
- pass 2: each model scores the whole pool through `candidates`, and the probabilities are averaged.
  A label that one model did not rank among its best is scored by it all the same, never taken as 0;
- pools and sums lie in temporary memory-mapped files, so that memory grows neither with the number
  of models nor with the number of texts.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.errors import ConfigError, ModelError
from glocal.progress import Progress, report
from glocal.ranking.pool import distinct_labels, scores_at
from glocal.ranking.predictions import Predictions
from glocal.storage.model_directory import read_labels

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.predict.predictor import Predictor
    from glocal.vocabulary.label_space import LabelSpace

CHUNK = 4096  # texts between two writes to the pool


def ensemble_predict(
    paths: Sequence[str | Path],
    corpus: Corpus,
    *,
    k: int = 5,
    pool: int = 100,
    raw: bool = False,
    device: str = "auto",
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Predictions:
    """Return the best labels of each text by the mean probability of several models.

    Args:
        paths: Model directories that share one label space.
        corpus: The texts.
        k: Labels per text.
        pool: Labels each model proposes for a text; never fewer than `k`.
        raw: Average the models' probabilities as they are, without their calibration.
        device: The device to compute on.
        batch_size: Texts per batch.
        progress: Called with (texts done, texts to do), counted over all models and both passes.

    Raises:
        ConfigError: When there is no model, or `k` exceeds the number of labels.
        ModelError: When the models do not know the same labels.

    Example:
        >>> from glocal import Corpus, ensemble_predict
        >>> voted = ensemble_predict(["model/", "model/"], Corpus.from_texts(["an apple"]), k=1)
        >>> voted.label_ids(0)
        ['fruit']
    """
    from glocal.predict.predictor import Predictor  # brings torch

    labels = ensemble_labels(paths)
    if not 1 <= k <= len(labels):
        raise ConfigError(f"k = {k}: expected 1 to {len(labels)}, the number of labels")
    width = min(max(pool, k), len(labels))
    with tempfile.TemporaryDirectory(prefix="glocal-ensemble-") as folder:
        votes = _Votes(Path(folder), (len(corpus), len(paths), width), calibrated=not raw)
        turns = list(itertools.product((votes.propose, votes.score), enumerate(paths)))
        for turn, (act, (model, path)) in enumerate(turns):
            predictor = Predictor.load(path, device=device, batch_size=batch_size)
            for start in range(0, len(corpus), CHUNK):
                texts = corpus.texts(start, start + CHUNK)
                act(model, predictor, texts, slice(start, start + len(texts)))
                done = turn * len(corpus) + start + len(texts)
                report(progress, done, len(turns) * len(corpus))
            del predictor  # gone before the next one is read
        return votes.best(k).with_labels(labels)


def ensemble_labels(paths: Sequence[str | Path]) -> LabelSpace:
    """Return the label space the models share.

    Raises:
        ConfigError: When there is no model.
        ModelError: When the models do not know the same labels; names the difference.
    """
    if not paths:
        raise ConfigError("an ensemble needs at least one model directory")
    first = read_labels(paths[0])
    for path in paths[1:]:
        other = read_labels(path)
        if other.ids != first.ids:
            raise ModelError(_difference(paths[0], first.ids, path, other.ids))
    return first


def _difference(
    first: str | Path, first_ids: list[str], other: str | Path, other_ids: list[str]
) -> str:
    missing = sorted(set(first_ids) - set(other_ids))
    extra = sorted(set(other_ids) - set(first_ids))
    parts = [
        f"{len(ids):,} known only to {path} (such as {', '.join(ids[:3])})"
        for path, ids in ((first, missing), (other, extra))
        if ids
    ]
    what = "; ".join(parts) or "the same labels in another order"
    return (
        f"{first} and {other} do not share a label space: {what}. "
        "Train both on the same training file and label table, with the same labels.min_count"
    )


class _Votes:
    """The pool of labels of every text and the sum of the models' probabilities, on disk.

    Args:
        folder: Where the files go.
        shape: Texts, models, labels each model puts forward.
        calibrated: Whether the models' probabilities are calibrated.
    """

    def __init__(self, folder: Path, shape: tuple[int, int, int], *, calibrated: bool) -> None:
        n_texts, self.n_models, self.width = shape
        self.calibrated = calibrated
        flat = (n_texts, self.n_models * self.width)
        self.proposed = _scratch(folder / "proposed.npy", flat, np.int64)  # (n, models × width)
        self.sums = _scratch(folder / "sums.npy", flat, np.float32)  # (n, models × width)

    def propose(self, model: int, predictor: Predictor, texts: list[str], rows: slice) -> None:
        """Store the labels a model proposes."""
        found = predictor.predict(texts, k=self.width)
        start = model * self.width
        # One more than the label: 0, as in a new file, means none.
        self.proposed[rows, start : start + found.k] = found.indices + 1

    def score(self, _model: int, predictor: Predictor, texts: list[str], rows: slice) -> None:
        """Add a model's probabilities of the pooled labels."""
        candidates = distinct_labels(self.proposed[rows] - 1)
        width = candidates.shape[1]
        scored = predictor.predict(
            texts, k=width, candidates=candidates, calibrated=self.calibrated
        )
        scores = scores_at(candidates, scored)
        self.sums[rows, :width] += np.where(candidates >= 0, scores, 0.0)

    def best(self, k: int) -> Predictions:
        """Return the labels with the highest mean probability."""
        parts = [Predictions(np.empty((0, k), np.int64), np.empty((0, k), np.float32))]
        for start in range(0, len(self.proposed), CHUNK):
            rows = slice(start, start + CHUNK)
            labels = distinct_labels(self.proposed[rows] - 1)
            means = self.sums[rows, : labels.shape[1]] / np.float32(self.n_models)
            parts.append(Predictions.from_unsorted(labels, means, k))
        return Predictions.concat(parts)


def _scratch(path: Path, shape: tuple[int, int], dtype: type) -> Any:
    """Return an array of zeros in a file, or in memory if it is empty (not mappable)."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
