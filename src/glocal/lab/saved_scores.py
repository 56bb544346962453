"""Saved scores: every expert's log-odds of the best labels of each text, with the gold labels.

One file per model and set of texts. It is all that is needed to combine experts and models in
another way and to score the result, long after the models are gone (`lab/combine.py`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from glocal.arrays import Floats, Floats32, Ints
from glocal.data.atomic import atomic_write
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, DataError
from glocal.log_odds import log_odds
from glocal.predict.evaluation import EvaluationReport, evaluate_predictions
from glocal.predict.predictor import Predictor
from glocal.progress import Progress
from glocal.ranking.pool import LOWEST_AND_HIGHEST, distinct_labels, scores_at
from glocal.ranking.predictions import Predictions

_FIELDS = ("label_ids", "counts", "n_train", "experts", "labels", "log_odds", "starts", "gold")


@dataclass(frozen=True, eq=False)
class SavedScores:
    """Log-odds of experts at the labels that any of them ranks high.

    Attributes:
        label_ids: Ids of the label space.
        counts: (L,) training texts of each label.
        n_train: Number of training texts.
        experts: Names of the experts.
        labels: (n, m) labels of each text, in rising order, −1 for none.
        log_odds: (n, m, experts) their log-odds.
        gold: Sparse (n, columns ≥ L) gold labels; columns beyond the label space are misses.
    """

    label_ids: list[str]
    counts: Ints
    n_train: int
    experts: list[str]
    labels: Ints
    log_odds: Floats32
    gold: Any

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, labels: Ints) -> Floats:
        """Return the log-odds of other labels (n, m'), as (n, m', experts).

        A label that no expert of this model ranked high gets each expert's lowest of the text.
        """
        found = np.empty((*labels.shape, len(self.experts)), dtype=np.float64)
        for row, (known, values) in enumerate(zip(self.labels, self.log_odds, strict=True)):
            known = known[known >= 0]
            if not len(known):
                raise DataError(f"text {row + 1} has no scored label")
            values = values[: len(known)]
            places = np.minimum(np.searchsorted(known, labels[row]), len(known) - 1)
            there = (known[places] == labels[row])[:, None]
            found[row] = np.where(there, values[places], values.min(axis=0))
        return found

    def evaluate(self, found: Predictions, ks: Sequence[int]) -> EvaluationReport:
        """Score predictions for these texts."""
        return evaluate_predictions(
            found, self.gold, counts=self.counts, n_train=self.n_train, ks=tuple(ks)
        )

    def save(self, path: str | Path) -> None:
        """Write a compressed file, complete or not at all."""
        try:
            with atomic_write(path) as file:
                np.savez_compressed(
                    file,
                    label_ids=np.array(self.label_ids, dtype=str),
                    counts=self.counts,
                    n_train=np.array(self.n_train),
                    experts=np.array(self.experts, dtype=str),
                    labels=self.labels.astype(np.int32),
                    log_odds=self.log_odds.astype(np.float32),
                    starts=self.gold.indptr.astype(np.int64),
                    gold=self.gold.indices.astype(np.int32),
                )
        except OSError as error:
            raise DataError(f"cannot write the scores: {error}", path=path) from error

    @classmethod
    def load(cls, path: str | Path) -> SavedScores:
        """Read a file that `save` wrote.

        Raises:
            DataError: The file is missing, damaged, or something else.
        """
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                parts = {name: arrays[name] for name in _FIELDS}
            starts, gold = parts["starts"], parts["gold"]
            columns = max(len(parts["counts"]), int(gold.max(initial=-1)) + 1)
            shape = (len(parts["labels"]), columns)
            matrix = sp.csr_matrix((np.ones(len(gold), np.int8), gold, starts), shape=shape)
            matrix.check_format()
            saved = cls(
                parts["label_ids"].tolist(),
                parts["counts"],
                int(parts["n_train"]),
                parts["experts"].tolist(),
                parts["labels"].astype(np.int64),
                parts["log_odds"],
                matrix,
            )
            _check(saved)
        except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"not readable as saved scores: {error}; write the file again with "
                "`glocal combine save`",
                path=path,
            ) from error
        return saved


def _check(saved: SavedScores) -> None:
    n_labels = len(saved.label_ids)
    if saved.log_odds.shape != (*saved.labels.shape, len(saved.experts)):
        raise ValueError("labels, experts and scores have different shapes")
    if saved.counts.shape != (n_labels,) or saved.labels.max(initial=-1) >= n_labels:
        raise ValueError("there are labels outside the label space")


def save_scores(
    predictor: Predictor, corpus: Corpus, *, best: int = 30, progress: Progress | None = None
) -> SavedScores:
    """Score every label that the model or one of its experts ranks among its best.

    Args:
        predictor: The model.
        corpus: Texts with gold labels.
        best: Labels that the model and each expert propose for a text.
        progress: Called with (texts done, texts to do), counted over both passes.

    Raises:
        ConfigError: The model has no experts to score, or `best` is too small.
    """
    if best < 1:
        raise ConfigError(f"at least 1 label per text must be saved, not {best}")
    experts, n_texts = predictor.expert_names, len(corpus)

    def half(first: int) -> Progress | None:
        if progress is None:
            return None
        return lambda done, _total: progress(first + done, 2 * n_texts)

    proposed = predictor.predict(
        corpus, k=min(best, len(predictor.labels)), per_expert=True, progress=half(0)
    )
    every = [proposed.indices, *(alone.indices for alone in proposed.experts.values())]
    labels = distinct_labels(np.concatenate(every, axis=1))
    scored = predictor.predict(corpus, candidates=labels, per_expert=True, progress=half(n_texts))
    columns = [
        log_odds(scores_at(labels, scored.experts[name]), LOWEST_AND_HIGHEST) for name in experts
    ]
    return SavedScores(
        list(predictor.labels.ids),
        predictor.labels.counts,
        predictor.labels.n_documents,
        list(experts),
        labels,
        np.stack(columns, axis=-1).astype(np.float32),
        predictor.labels.encode(corpus),
    )
