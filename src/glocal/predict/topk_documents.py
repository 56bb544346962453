"""Top-k over many documents: batches of similar length, results in the documents' order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from glocal.data.batches import Collator, prediction_batches
from glocal.progress import Progress, report
from glocal.ranking.document_ranker import DocumentRanker, RankRequest
from glocal.ranking.predictions import Predictions


def score_documents(
    system: DocumentRanker,
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
    wanted = np.arange(len(documents)) if positions is None else positions
    k = min(k, system.n_labels) if candidates is None else min(k, candidates.shape[1])
    pages, order = [_nothing(k, experts, mean)], [np.empty(0, np.int64)]
    done = 0
    with system.computing():
        for places in prediction_batches(documents.tokens.lengths[wanted], batch_size):
            chosen = wanted[places]
            given = None if candidates is None else candidates[chosen]
            request = RankRequest(k, given, allowed, experts, mean)
            with autocast():
                pages.append(system.rank_documents(documents, chosen, request))
            order.append(places)
            done += len(places)
            report(progress, done, len(wanted))
    return Predictions.concat(pages).take(np.argsort(np.concatenate(order)))


def _nothing(k: int, experts: Sequence[str], mean: bool) -> Predictions:
    """Return k labels of no documents, which fixes the width of the result."""
    none = Predictions(np.empty((0, k), np.int64), np.empty((0, k), np.float32))
    return replace(none, experts=dict.fromkeys(experts, none), mean=none if mean else None)
