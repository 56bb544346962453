"""Exact top-k of an APLC layer that skips the tails which cannot matter.

`p = σ(gate)·σ(z) ≤ σ(gate)`: a document whose k-th best score so far is above a tail's gate has
nothing to gain there (rounding keeps the order, and only a strictly smaller gate is skipped, so
ties by label id come out the same). Documents are decided on one by one, and computed together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.heads.aplc import APLC
from glocal.losses.chunked import label_chunks
from glocal.systems.topk import RunningTopK, TopK

__all__ = ["aplc_topk"]

_CHUNK_ELEMENTS = {"cuda": 1 << 27, "cpu": 1 << 19}  # on a CPU, what its caches hold


def aplc_topk(
    head: APLC,
    document: Tensor,
    k: int,
    *,
    allowed: Tensor | None = None,
    prune: bool = True,
) -> TopK:
    """The best k labels of each document, by id.

    Args:
        head: The output layer.
        document: (B, d) fp32.
        k: How many labels.
        allowed: (L,) bool, labels that may be predicted.
        prune: Skip tails; the result is the same without.
    """
    best = RunningTopK(min(k, head.bounds[-1]))
    best.keys = torch.full((len(document), best.k), -1, device=document.device)
    search = _Search(head, best, allowed)
    search.visit(0, document, None, prune=False)
    if head.n_tails:
        gates = head.gate_probabilities(document)
        # The likeliest tail first: what it gives raises the bar for the others.
        for tail in gates.mean(0).argsort(descending=True).tolist():
            search.visit(tail + 1, document, gates[:, tail], prune=prune)
    return best.result()


class _Search:
    """The best labels so far, and the clusters they come from."""

    def __init__(self, head: APLC, best: RunningTopK, allowed: Tensor | None) -> None:
        self.head, self.best, self.allowed = head, best, allowed

    def visit(self, number: int, document: Tensor, gates: Tensor | None, *, prune: bool) -> None:
        """Take in the labels of a cluster, for the documents that may gain by it."""
        rows = self._hopeful(gates) if prune and gates is not None else None
        if rows is not None and not len(rows):
            return
        if rows is not None and len(rows) == len(document):
            rows = None  # all of them: nothing to pick out and put back
        chosen = document if rows is None else document[rows]
        chosen_gates = gates if rows is None or gates is None else gates[rows]
        part = self.best if rows is None else self._part(rows)
        self._score(number, chosen, chosen_gates, part)
        if rows is not None:
            assert self.best.keys is not None
            assert part.keys is not None
            self.best.keys[rows] = part.keys

    def _hopeful(self, gates: Tensor) -> Tensor:
        """Documents whose k-th score does not exceed the gate; an empty place has score 0."""
        return (gates >= self.best.result().scores[:, -1]).nonzero()[:, 0]

    def _part(self, rows: Tensor) -> RunningTopK:
        assert self.best.keys is not None
        part = RunningTopK(self.best.k)
        part.keys = self.best.keys[rows]
        return part

    def _score(
        self, number: int, document: Tensor, gates: Tensor | None, best: RunningTopK
    ) -> None:
        start, stop = self.head.bounds[number : number + 2]
        cluster = self.head.cluster(number)
        inner = cluster.project(document)
        budget = _CHUNK_ELEMENTS.get(document.device.type, 1 << 24)
        for chunk in label_chunks(stop - start, documents=len(document), width=1, budget=budget):
            scores = torch.sigmoid(cluster.logits(inner, chunk))
            if gates is not None:
                scores = scores * gates.unsqueeze(1)
            labels = self.head.order[start + chunk.start : start + chunk.stop]
            best.update(scores, labels, self.allowed)
