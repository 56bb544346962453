"""The ranker of a model of words alone, in numpy.

It ranks the labels that the sparse model suggests for a text by its log-odds, combined as learnt on
dev. The labels it does not suggest follow below them, the most frequent first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools, Floats32, Ints
from glocal.companions.companion import SPARSE, SPARSE_ODDS
from glocal.config.expert_names import SPARSE_EXPERT
from glocal.metrics.topk_order import sort_topk
from glocal.ranking.combination import Combination
from glocal.ranking.document_ranker import DocumentRanker, RankRequest, check_device
from glocal.ranking.predictions import Predictions

if TYPE_CHECKING:
    from glocal.data.batches import Collator

_CELLS = 1 << 22  # (document, label) pairs looked at together


class WordsRanker(DocumentRanker):
    """Ranks labels by the words of a text.

    Args:
        counts: (L,) training texts of each label.
    """

    learns_weights = True

    def __init__(self, counts: NDArray[np.integer]) -> None:
        self.n_labels, self.expert_names = len(counts), [SPARSE_EXPERT]
        self._device = "cpu"
        self.counts = np.asarray(counts)
        self.unseen = self.counts == 0
        self._share: Floats32 = ((self.counts + 1) / (self.counts.max(initial=0) + 2)).astype(
            np.float32
        )
        self._by_frequency = np.argsort(-self.counts, kind="stable")

    @property
    def device_name(self) -> str:
        """The device that labels are scored on: a GPU only where it is asked for by its name."""
        return self._device

    def use_device(self, device: str) -> None:
        """Choose where labels are scored; `auto` is the CPU, which needs no torch to start."""
        check_device(device)
        self._device = device if device.startswith("cuda") else "cpu"

    def rank_documents(
        self, documents: Collator, positions: Ints, request: RankRequest
    ) -> Predictions:
        """Rank the suggested labels, or those given."""
        k, candidates, allowed = request.k, request.candidates, request.allowed
        best = documents.companion_features[SPARSE][positions].astype(np.int64)
        odds = documents.companion_features[SPARSE_ODDS][positions]
        labels = best if candidates is None else candidates
        logits = odds if candidates is None else log_odds_at(best, odds, labels, self.unseen)
        usable = labels >= 0
        if allowed is not None:
            usable &= allowed[labels]
        kept = np.where(usable, labels, -1)

        def ranked(combination: Combination) -> Predictions:
            scores = combination.of_arrays({SPARSE_EXPERT: logits}, self.counts[labels])
            found = sort_topk(kept, scores, k)
            if candidates is None and best.shape[1] < k:
                found = self._filled(*found, best, allowed, k)
            return Predictions(*found)

        found = ranked(self.combination)
        if not request.experts and not request.mean:
            return found
        alone = ranked(Combination())
        experts = dict.fromkeys(request.experts, alone)
        return replace(found, experts=experts, mean=alone if request.mean else None)

    def _filled(
        self,
        indices: Ints,
        scores: Floats32,
        listed: Ints,
        allowed: Bools | None,
        k: int,
    ) -> tuple[Ints, Floats32]:
        """Add the labels outside a list below those found, the most frequent first."""
        width = min(k, self.n_labels)
        labels = np.full((len(indices), width), -1)
        values = np.zeros((len(indices), width), np.float32)
        step = max(1, _CELLS // self.n_labels)
        for start in range(0, len(indices), step):
            rows = slice(start, start + step)
            free = self._outside(listed[rows], allowed)
            known = indices[rows] >= 0
            lowest = np.where(known, scores[rows], 1.0).min(axis=1)
            used = known.sum(axis=1)
            free &= np.cumsum(free, axis=1) <= (width - used)[:, None]
            row, place = np.nonzero(free)
            column = used[row] + np.concatenate([np.arange(n) for n in free.sum(axis=1)])
            most = min(width, known.shape[1])
            labels[rows, :most], values[rows, :most] = indices[rows, :most], scores[rows, :most]
            added = self._by_frequency[place]
            labels[start + row, column] = added
            values[start + row, column] = lowest[row].astype(np.float32) * self._share[added]
        return sort_topk(labels, values)

    def _outside(self, listed: Ints, allowed: Bools | None) -> Bools:
        """Mark the labels that are not listed for each document, the most frequent first."""
        free = np.ones((len(listed), self.n_labels + 1), dtype=bool)  # a column for empty places
        np.put_along_axis(free, np.where(listed < 0, self.n_labels, listed), False, 1)
        free = free[:, :-1]
        if allowed is not None:
            free &= allowed
        return free[:, self._by_frequency]


def log_odds_at(
    best: Ints,
    odds: Floats32,
    labels: Ints,
    unseen: Bools,
) -> Floats32:
    """Return the sparse model's log-odds of given labels of each document, (B, C).

    A label outside its best ones gets the log-odds of the last of them; labels without a training
    text and the others each have their own.

    Args:
        best: (B, M) its best labels, −1 for none.
        odds: (B, M) their log-odds.
        labels: (B, C) the labels asked for.
        unseen: (L,) labels without a training text.
    """
    order = np.argsort(best)
    found = np.full(labels.shape, np.nan, dtype=np.float32)
    for row, (own, places) in enumerate(zip(best, order, strict=True)):
        at = np.minimum(np.searchsorted(own, labels[row], sorter=places), len(own) - 1)
        there = own[places[at]] == labels[row]
        found[row, there] = odds[row, places[at[there]]]
    lowest = odds.min(axis=1, keepdims=True)
    known = ~unseen[best] | (best < 0)
    lowest_known = np.where(known, odds, odds.max(initial=-np.inf)).min(axis=1, keepdims=True)
    other = np.where(unseen[labels], lowest, lowest_known)
    return np.where(np.isnan(found), other, found).astype(np.float32)
