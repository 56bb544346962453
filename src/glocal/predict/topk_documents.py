"""Top-k over many documents: batches of like length, order restored, pieces gathered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from glocal.data.batches import collate, prediction_batches
from glocal.progress import Progress
from glocal.ranking.predictions import Predictions
from glocal.ranking.ranker import COMBINED

if TYPE_CHECKING:
    from glocal.data.tokens import TokenStore
    from glocal.encoders.tokenizer import TextTokenizer
    from glocal.ranking.ranker import Ranker

__all__ = ["score_documents"]


def score_documents(
    system: Ranker,
    tokens: TokenStore,
    tokenizer: TextTokenizer,
    *,
    k: int,
    batch_size: int = 64,
    positions: np.ndarray | None = None,
    candidates: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    parts: Sequence[str] = (),
    companion_features: Mapping[str, np.ndarray] | None = None,
    autocast: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    progress: Progress | None = None,
) -> dict[str, Predictions]:
    """The best k labels of each document, under `combined` and, if asked, the names of parts.

    Args:
        system: Already on its device.
        tokens: The documents.
        tokenizer: For padding.
        k: Labels per document, at most the number of labels.
        batch_size: Documents at a time.
        positions: Which documents, in this order; by default all.
        candidates: (documents of `tokens`, m) label ids to score, −1 for none.
        allowed: (L,) bool, labels that may be predicted.
        parts: Also of these, experts or the `mean` of them.
        companion_features: Companions' features, a row for each document of `tokens`.
        autocast: Context of the computation.
        progress: Called with (done, total).
    """
    device = next(chain(system.parameters(), system.buffers())).device
    facts = tokenizer.facts
    wanted = np.arange(len(tokens)) if positions is None else positions
    k = min(k, system.n_labels) if candidates is None else min(k, candidates.shape[1])
    permitted = None if allowed is None else torch.from_numpy(allowed).to(device)
    names = [COMBINED, *parts]
    indices = {n: np.full((len(wanted), k), -1, dtype=np.int64) for n in names}
    scores = {n: np.zeros((len(wanted), k), dtype=np.float32) for n in names}
    was_training, done = system.training, 0
    system.eval()
    for places in prediction_batches(tokens.lengths[wanted], batch_size):
        chosen = wanted[places]
        batch = collate(
            tokens,
            chosen,
            pad_id=facts.pad_id,
            left=facts.cls_last,
            companion_features=companion_features,
            chunking=system.chunking,
        ).to(device)
        given = None if candidates is None else torch.from_numpy(candidates[chosen]).to(device)
        with torch.inference_mode(), autocast():
            found = system.topk(batch, k, candidates=given, allowed=permitted, parts=parts)
        for name in names:
            width = found[name].indices.shape[1]
            indices[name][places, :width] = found[name].indices.cpu().numpy()
            scores[name][places, :width] = found[name].scores.cpu().numpy()
        done += len(places)
        if progress is not None:
            progress(done, len(wanted))
    system.train(was_training)
    return {name: Predictions(indices[name], scores[name]) for name in names}
