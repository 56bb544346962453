"""The ranking of all labels by processes that have a slice of the label parameters each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from glocal.label_slice import LabelSlice
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.ranker import Ranked
from glocal.ranking.topk import TopK


def rank_slice(
    here: LabelSlice, n_labels: int, request: RankRequest, rank: Callable[[RankRequest], Ranked]
) -> Ranked:
    """Rank the labels of this process and return the best of all processes.

    Args:
        here: The labels of this process, a range of label ids.
        n_labels: Number of all labels.
        request: A request with ids of all labels.
        rank: Ranks the labels of this process, counted from 0.
    """
    if not here.sharded:
        return rank(request)
    start, stop = here.bounds(n_labels)
    candidates, allowed = request.candidates, request.allowed
    own = replace(
        request,
        candidates=None if candidates is None else here.local(candidates, n_labels),
        allowed=None if allowed is None else allowed[start:stop],
    )

    def merge(found: TopK) -> TopK:
        indices = torch.where(found.indices >= 0, found.indices + start, -1)
        return TopK(*here.merged(indices, found.scores, request.k))

    found = rank(own)
    experts = {name: merge(alone) for name, alone in found.experts.items()}
    mean = None if found.mean is None else merge(found.mean)
    return Ranked(merge(found.combined), experts, mean)
