"""Top-k over many documents: batches of similar length, results in the documents' order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch

from glocal.data.batches import Collator, prediction_batches
from glocal.progress import Progress
from glocal.ranking.predictions import Predictions
from glocal.ranking.ranker import Ranked, Ranker, RankRequest
from glocal.ranking.topk import TopK


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
    pages, order = [_predictions(_nothing(k, experts, mean))], [np.empty(0, np.int64)]
    done, was_training = 0, system.training
    if was_training:  # threads that predict at the same time must not touch the system
        system.eval()
    for places in prediction_batches(documents.tokens.lengths[wanted], batch_size):
        chosen = wanted[places]
        batch = documents(chosen).to(device)
        given = None if candidates is None else torch.from_numpy(candidates[chosen]).to(device)
        with torch.inference_mode(), autocast():
            request = RankRequest(k, given, permitted, experts, mean)
            ranked = system.rank(batch, system.prepare(batch), request)
        pages.append(_predictions(ranked))
        order.append(places)
        done += len(places)
        if progress is not None:
            progress(done, len(wanted))
    if was_training:
        system.train()
    return Predictions.concat(pages).take(np.argsort(np.concatenate(order)))


def _predictions(ranked: Ranked) -> Predictions:
    """Return the predictions of a batch, off the device."""

    def read(found: TopK) -> Predictions:
        return Predictions(found.indices.cpu().numpy(), found.scores.cpu().numpy())

    experts = {name: read(found) for name, found in ranked.experts.items()}
    mean = None if ranked.mean is None else read(ranked.mean)
    return replace(read(ranked.combined), experts=experts, mean=mean)


def _nothing(k: int, experts: Sequence[str], mean: bool) -> Ranked:
    """Return k labels of no documents, which fixes the width of the result."""
    none = TopK(torch.empty((0, k), dtype=torch.int64), torch.empty((0, k)))
    return Ranked(none, dict.fromkeys(experts, none), none if mean else None)
