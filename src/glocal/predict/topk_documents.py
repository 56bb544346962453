"""Top-k over many documents: batches of similar length, results in the documents' order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from glocal.data.batches import Collator, prediction_batches
from glocal.progress import Progress
from glocal.ranking.predictions import Predictions

if TYPE_CHECKING:
    from glocal.ranking.ranker import Ranker
    from glocal.ranking.topk import TopK

__all__ = ["score_documents"]


def score_documents(
    system: Ranker,
    documents: Collator,
    *,
    k: int,
    batch_size: int = 64,
    positions: np.ndarray | None = None,
    candidates: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    experts: Sequence[str] = (),
    mean: bool = False,
    autocast: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    progress: Progress | None = None,
) -> Predictions:
    """Return the best k labels of each document.

    Args:
        system: Already on its device.
        documents: The documents.
        k: Labels per document, at most the number of labels.
        batch_size: Documents per batch.
        positions: The documents to rank, in this order; by default all.
        candidates: (documents, m) label ids to score, −1 for none.
        allowed: (L,) bool, labels that may be predicted.
        experts: Names of experts whose own predictions are also returned.
        mean: Whether predictions by the mean of the experts' probabilities are too.
        autocast: Context of the computation.
        progress: Called with (done, total).
    """
    device = next(chain(system.parameters(), system.buffers())).device
    wanted = np.arange(len(documents)) if positions is None else positions
    k = min(k, system.n_labels) if candidates is None else min(k, candidates.shape[1])
    permitted = None if allowed is None else torch.from_numpy(allowed).to(device)
    shape = len(wanted), k
    combined, averaged = _Table(shape), _Table(shape)
    alone = {name: _Table(shape) for name in experts}
    done, was_training = 0, system.training
    if was_training:  # threads that predict at the same time must not touch the system
        system.eval()
    for places in prediction_batches(documents.tokens.lengths[wanted], batch_size):
        chosen = wanted[places]
        batch = documents(chosen).to(device)
        given = None if candidates is None else torch.from_numpy(candidates[chosen]).to(device)
        with torch.inference_mode(), autocast():
            ranked = system.topk(
                batch, k, candidates=given, allowed=permitted, experts=experts, mean=mean
            )
        combined.add(places, ranked.combined)
        for name, topk in ranked.experts.items():
            alone[name].add(places, topk)
        if ranked.mean is not None:
            averaged.add(places, ranked.mean)
        done += len(places)
        if progress is not None:
            progress(done, len(wanted))
    if was_training:
        system.train()
    return Predictions(
        combined.indices,
        combined.scores,
        experts={name: table.predictions() for name, table in alone.items()},
        mean=averaged.predictions() if mean else None,
    )


class _Table:
    """Predictions of (documents, k), filled batch by batch in any order."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.indices = np.full(shape, -1, dtype=np.int64)
        self.scores = np.zeros(shape, dtype=np.float32)

    def add(self, rows: np.ndarray, found: TopK) -> None:
        width = found.indices.shape[1]
        self.indices[rows, :width] = found.indices.cpu().numpy()
        self.scores[rows, :width] = found.scores.cpu().numpy()

    def predictions(self) -> Predictions:
        return Predictions(self.indices, self.scores)
