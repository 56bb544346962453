"""P@k of rounded graphs on dev texts, beside that of the graph in fp32.

Texts are scored in order, a few at a time, and a graph that has lost far more than it may is
refused before all of them are scored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.metrics.ranking import judge, precision_at_k
from glocal.predict.collate import collate
from glocal.predict.predictor import Predictor
from glocal.progress import Progress, report
from glocal.ranking.graph_ranker import GraphRanker
from glocal.storage.model_directory import StoredModel

_KS = (1, 3, 5)
_TEXTS, _AT_A_TIME = 1000, 128
_HARM_TEXTS, _HARM_LABELS = 16, 256
_FAR = 4  # times the loss allowed over all texts, which no later texts are expected to make up for
_LUCK = 2.0  # texts that may be lost by chance, however few texts there are


class DevCheck:
    """Compares graphs in int8 with the one in fp32, whose dev texts are scored once.

    Args:
        model: The model with its graph in fp32.
        dev: Labelled texts; the first ones are used.
        most_lost: Loss of P@1, P@3 and P@5 that a graph may have.
        rounds: Graphs that will be judged, at most.
        progress: Called with the texts scored and the most that may have to be.
    """

    def __init__(
        self,
        model: StoredModel,
        dev: Corpus,
        *,
        most_lost: float,
        rounds: int,
        progress: Progress | None = None,
    ) -> None:
        self._dev = dev.take(np.arange(min(len(dev), _TEXTS)))
        self._most_lost, self._progress = most_lost, progress
        self._scored, self._left = 0, 2 * len(self._dev)  # the first graph may be good enough
        self._further = (rounds - 1) * len(self._dev)
        self._sample = self._dev.take(np.arange(min(len(self._dev), _HARM_TEXTS))).texts()
        self._logits = self._sample_logits(model)
        self._fp32 = np.concatenate([*self._precisions(model)])  # (texts with gold, ks)
        if not len(self._fp32):
            raise DataError("none of the dev texts has a label, so int8 cannot be checked on them")
        self._last = self._good = self._fp32

    def good_enough(self, model: StoredModel) -> bool:
        """Return whether a graph loses no more than it may."""
        most = max(_FAR * self._most_lost * len(self._fp32), _LUCK)
        found = np.empty((0, len(_KS)))
        for rows in self._precisions(model):
            found = np.concatenate([found, rows])
            lost = (self._fp32[: len(found)] - found).sum(axis=0)
            if lost.max(initial=0.0) > most:
                break
        self._last = found
        lost = self._fp32[: len(found)].mean(axis=0) - found.mean(axis=0)
        good = len(found) == len(self._fp32) and bool((lost <= self._most_lost).all())
        if good:
            self._good = found
        else:
            self._left, self._further = self._left + self._further, 0
        return good

    def harm(self, model: StoredModel) -> float:
        """Return how far a graph's logits of a few texts and labels are from those in fp32."""
        return float(np.abs(self._sample_logits(model) - self._logits).mean())

    def summary(self) -> str:
        """Return the difference that the graph judged last makes, as the user reads it."""
        count = len(self._last)
        difference = 100 * (self._last.mean(axis=0) - self._fp32[:count].mean(axis=0))
        parts = [f"P@{k} {d:+.2f}" for k, d in zip(_KS, difference, strict=True)]
        return f"{', '.join(parts)} in int8 on {count:,} of {len(self._fp32):,} texts"

    def scores(self, rounded: bool) -> dict[str, dict[str, float]]:
        """Return P@k in fp32, and in int8: of the last graph that was good enough, if any was."""
        found = {"fp32": self._fp32, "int8": self._good if rounded else self._last}
        return {
            name: {f"P@{k}": float(v) for k, v in zip(_KS, rows.mean(axis=0), strict=True)}
            for name, rows in found.items()
        }

    def _precisions(self, model: Any) -> Iterator[Any]:
        """Yield P@k of texts (n, ks), a few at a time."""
        opened, done = self._open(model), 0
        self._show(done)
        try:
            for start in range(0, len(self._dev), _AT_A_TIME):
                stop = min(start + _AT_A_TIME, len(self._dev))
                rows = self._score(opened, start, stop)
                done = stop
                self._show(done)
                yield rows
        finally:
            self._scored += done
            self._left -= len(self._dev)

    def _open(self, model: StoredModel) -> Any:
        return Predictor(model)

    def _score(self, predictor: Any, start: int, stop: int) -> Any:
        """Return P@k of some of the texts, without those that have no label."""
        some = self._dev.take(np.arange(start, stop))
        found = predictor.predict(some, k=max(_KS)).indices
        judged = judge(found, predictor.labels.encode(some))
        return np.stack([precision_at_k(judged, k).numerators for k in _KS], axis=1)

    def _show(self, done: int) -> None:
        report(self._progress, self._scored + done, self._scored + self._left)

    def _sample_logits(self, model: StoredModel) -> Any:
        assert isinstance(model.system, GraphRanker)
        documents = collate(Predictor(model), self._sample)
        few = np.arange(min(model.system.n_labels, _HARM_LABELS))
        labels = np.broadcast_to(few, (len(self._sample), len(few)))
        found = model.system.expert_logits(documents, np.arange(len(self._sample)), labels)
        return np.stack(list(found.values()))
