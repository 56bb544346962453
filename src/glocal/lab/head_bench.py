"""Flat and APLC output layers on synthetic documents whose labels follow Zipf's law.

- a training step is forward, backward and AdamW on the layer alone, without an encoder;
- gates are set by hand: `closed` for every document, `typical` (open exactly for the tails that
  hold a label of the document) or `open`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import Clusters, cluster_priors, label_clusters
from glocal.lab.synthetic_steps import CPU
from glocal.losses.bce import bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks
from glocal.losses.memory import ChunkUse
from glocal.ranking.aplc_topk import aplc_topk
from glocal.ranking.topk import TopK

_GATE = 12.0  # logit of an open gate
_DOCUMENTS = 500_000  # training documents the label counts stand for


@dataclass(frozen=True)
class Workload:
    """Synthetic documents and their labels.

    Attributes:
        n_labels: Size of the label space; label ids are in the order of frequency.
        width: Width of the document vectors.
        batch: Number of documents.
        per_document: Labels of each document.
        exponent: Exponent of Zipf's law.
        seed: Random seed.
        device: Where it is computed.
    """

    n_labels: int
    width: int = 384
    batch: int = 32
    per_document: int = 5
    exponent: float = 1.0
    seed: int = 0
    device: torch.device = CPU

    def counts(self) -> np.ndarray:
        """Return the training documents of each label, (L,)."""
        return np.round(self._chances() * self.per_document * _DOCUMENTS).astype(np.int64)

    def gold(self) -> Tensor:
        """Return different labels for each document, (B, G)."""
        random = np.random.default_rng(self.seed)
        chances = self._chances()
        rows = [
            random.choice(self.n_labels, self.per_document, replace=False, p=chances)
            for _ in range(self.batch)
        ]
        return torch.from_numpy(np.array(rows)).to(self.device)

    def documents(self) -> Tensor:
        """Return vectors between −1 and 1, like those of a tanh layer, (B, d)."""
        torch.manual_seed(self.seed)
        return torch.tanh(torch.randn(self.batch, self.width)).to(self.device)

    def _chances(self) -> np.ndarray:
        weights = 1.0 / np.arange(1, self.n_labels + 1) ** self.exponent
        chances: np.ndarray = weights / weights.sum()
        return chances


class FlatHead(nn.Module):
    """The layer APLC is compared with: a vector at full width and a bias for each label."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        # One cluster is a flat layer; so both predict by the same search.
        self.layer = build_clusters(workload, [1.0])

    def loss(self, document: Tensor, gold: Tensor, weights: Tensor, *, limit: int) -> Tensor:
        """Return the BCE over all labels, the mean over documents."""

        def chunk_loss(chunk: slice, states: Any, rows: Any) -> Tensor:
            logits = functional.linear(states[0], *rows)
            return bce_chunk(logits, gold, chunk.start)

        labels = self.layer.cluster(0).label_tensors()
        chunks = label_chunks(len(labels[0]), documents=len(document), width=1, limit=limit)
        total = chunked_loss(chunk_loss, chunks, [document], labels)
        return total * weights[0]


def build_clusters(workload: Workload, partition: Sequence[float], q: float = 2.0) -> APLC:
    """Build an APLC layer over the workload's labels."""
    counts = workload.counts()
    clusters = label_clusters(counts, partition)
    priors = cluster_priors(clusters, counts, _DOCUMENTS)
    return APLC(clusters, width=workload.width, q=q, priors=priors)


def tail_shares(clusters: Clusters, gold: Tensor) -> list[float]:
    """Return the share of documents with a label in each tail: p_i of Eq. 11, for one document."""
    found = clusters.cluster_of[gold.cpu().numpy()]  # (B, G)
    return [float((found == tail).any(1).mean()) for tail in range(1, clusters.n_tails + 1)]


def training_step(head: FlatHead | APLC, workload: Workload) -> Callable[[], None]:
    """Return a function that does one optimizer step on the same batch."""
    document, gold = workload.documents(), workload.gold()
    weights = torch.full((workload.batch,), 1.0 / workload.batch, device=workload.device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-4, fused=True)
    limit = ChunkUse.CLUSTER_LOSS.limit(workload.device.type)

    def step() -> None:
        loss = head.loss(document.requires_grad_(), gold, weights, limit=limit)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        document.grad = None

    return step


@torch.no_grad()
def set_gates(head: APLC, document: Tensor, gold: Tensor, how: str) -> Tensor:
    """Set the gates and return documents that open them; coordinate t is gate t's logit."""
    present = head.present(head.rank_gold(gold))
    gates = {"closed": present & False, "typical": present, "open": present | True}[how]
    head.gates.weight.zero_()
    head.gates.weight[range(head.n_tails), range(head.n_tails)] = 1.0
    if head.gates.bias is not None:
        head.gates.bias.zero_()
    document = document.clone()
    document[:, : head.n_tails] = torch.where(gates, _GATE, -_GATE)
    return document


@torch.no_grad()
def head_topk(head: FlatHead | APLC, document: Tensor, k: int, *, prune: bool = True) -> TopK:
    """Return the best k labels by a layer."""
    layer = head.layer if isinstance(head, FlatHead) else head
    return aplc_topk(layer, document, k, prune=prune)
