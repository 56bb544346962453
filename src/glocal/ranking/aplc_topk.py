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
from glocal.losses.memory import ChunkUse
from glocal.ranking.topk import RunningTopK, TopK


def aplc_topk(
    head: APLC,
    document: Tensor,
    k: int,
    *,
    allowed: Tensor | None = None,
    prune: bool = True,
) -> TopK:
    """Return the best k labels of each document.

    Args:
        head: The output layer.
        document: (B, d) fp32.
        k: Labels per document.
        allowed: (L,) bool, labels that may be predicted.
        prune: Skip tails; the result is the same without.
    """
    search = _Search(head, min(k, head.bounds[-1]), len(document), allowed)
    everyone = torch.arange(len(document), device=document.device)
    search.visit(0, everyone, document, None)
    if head.n_tails:
        gates = head.gate_probabilities(document)
        # The likeliest tail first: what it gives raises the bar for the others.
        for tail in gates.mean(0).argsort(descending=True).tolist():
            gate = gates[:, tail]
            rows = (gate >= search.bar()).nonzero()[:, 0] if prune else everyone
            if len(rows):
                search.visit(tail + 1, rows, document[rows], gate[rows])
    return search.best.result()


class _Search:
    """Holds the best labels found so far.

    Args:
        head: The output layer.
        k: Labels per document.
        documents: Number of documents.
        allowed: (L,) bool, labels that may be predicted.
    """

    def __init__(self, head: APLC, k: int, documents: int, allowed: Tensor | None) -> None:
        self.head, self.allowed, self.best = head, allowed, RunningTopK(k)
        self.best.keys = torch.full((documents, k), -1, device=head.order.device)

    def bar(self) -> Tensor:
        """Return the k-th best score of each document, which a label must reach; 0 if free."""
        return self.best.result().scores[:, -1]

    def visit(self, number: int, rows: Tensor, document: Tensor, gates: Tensor | None) -> None:
        """Score the labels of a cluster for some documents.

        Args:
            number: Number of the cluster.
            rows: (n,) positions of the documents.
            document: (n, d) their vectors.
            gates: (n,) probabilities of the cluster; none for the head.
        """
        cluster = self.head.cluster(number)
        own, stop = cluster.here
        start = self.head.bounds[number] + own
        inner = cluster.project(document)
        limit = ChunkUse.CLUSTER_TOPK.limit(document.device.type)
        for chunk in label_chunks(stop - own, documents=len(rows), width=1, limit=limit):
            scores = torch.sigmoid(cluster.logits(inner, chunk))
            if gates is not None:
                scores = scores * gates.unsqueeze(1)
            labels = self.head.order[start + chunk.start : start + chunk.stop]
            self._take(rows, scores, labels)

    def _take(self, rows: Tensor, scores: Tensor, labels: Tensor) -> None:
        """Keep the best; only documents that gain are sorted: sorting is the costly part."""
        gaining = (scores.amax(1) >= self.bar()[rows]).nonzero()[:, 0]
        if not len(gaining):
            return
        if len(gaining) < len(rows):
            rows, scores = rows[gaining], scores[gaining]
        assert self.best.keys is not None
        part = RunningTopK(self.best.k)
        part.keys = self.best.keys[rows]
        part.update(scores, labels, self.allowed)
        self.best.keys[rows] = part.keys
