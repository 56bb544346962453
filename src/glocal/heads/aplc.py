"""Adaptive probabilistic label clusters (APLC-XLNet 3.3): an output layer for many labels.

- frequent labels in the head at full width d, with a gate for each tail; tail t projects the
  document to d / q^t and scores its labels there: `p = σ(z)` in the head, `σ(gate)·σ(z)` in a tail
  (Eq. 2), so rare labels cost little memory;
- the loss (Eq. 5) includes a tail only for documents with a label in it; the gate of an absent tail
  has its own BCE with target 0, since nothing else would train it to close;
- logits may be bf16, the loss is fp32, label-chunked, against sparse positives;
- callers use label ids; ranks by frequency are internal.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.heads.frequency_clusters import ClusterPriors, Clusters
from glocal.heads.product import log_one_minus_product, log_product, product_bce
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice
from glocal.losses.chunked import chunked_loss, label_chunks


def tail_width(width: int, q: float, tail: int) -> int:
    """Return the width d / q^t of tail t, counted from 1; at least 1."""
    return max(1, int(width / q**tail))


class Cluster(nn.Module):
    """Scores the labels of the head or of one tail from the document vector.

    Args:
        n_labels: Number of labels.
        width: Width of the document vector.
        inner: Width of the label vectors; the head has no projection.
        shape: `official`, `plain` or, for the head, `none`.
        bias: (n_labels,) initial biases; None for no biases.
        here: The labels that this process has.
    """

    def __init__(
        self,
        n_labels: int,
        width: int,
        inner: int,
        *,
        shape: str,
        bias: Tensor | None,
        here: LabelSlice = EVERY_LABEL,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if shape != "none":
            layers.append(nn.Linear(width, inner, bias=False))
        if shape == "official":
            layers += [nn.LayerNorm(inner), nn.ReLU()]
        self.project = nn.Sequential(*layers)
        self.n_labels, self.labels = n_labels, here
        self.weight = nn.Parameter(here.draw(n_labels, inner, 0.02))
        self.bias = None if bias is None else nn.Parameter(bias[slice(*self.here)].clone())

    @property
    def here(self) -> tuple[int, int]:
        """The first label of the cluster that is in this process, and the one after the last."""
        return self.labels.bounds(self.n_labels)

    def label_tensors(self) -> list[Tensor]:
        """Return label vectors and biases, with the labels on their first axis."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def logits(self, inner: Tensor, labels: slice | Tensor) -> Tensor:
        """Return logits of a slice of labels, (n, C), or of ids within the cluster, (n, M)."""
        return linear_logits(inner, [tensor[labels] for tensor in self.label_tensors()])


def linear_logits(inner: Tensor, rows: Any) -> Tensor:
    """Return logits of label rows: (C, w) shared by all documents, or (n, M, w) of each."""
    weight, *bias = rows
    if weight.dim() == 2:
        return functional.linear(inner, weight, *bias)
    logits: Tensor = (weight @ inner.unsqueeze(-1)).squeeze(-1)  # (n, M, w) · (n, w, 1)
    return logits + bias[0] if bias else logits


class APLC(nn.Module):
    """Adaptive probabilistic label clusters as an output layer.

    Args:
        clusters: The assignment of labels to clusters.
        width: Width of the document vector.
        q: Factor by which each tail is narrower than the one before.
        tail: `official` (Linear → LayerNorm → ReLU → Linear) or `plain` (Linear → Linear).
        priors: Initial biases as log-odds; None for no biases.
        here: The labels of each cluster that this process has.
    """

    order: Tensor
    ranks: Tensor
    sizes: Tensor

    def __init__(
        self,
        clusters: Clusters,
        *,
        width: int,
        q: float = 2.0,
        tail: str = "official",
        priors: ClusterPriors | None = None,
        here: LabelSlice = EVERY_LABEL,
    ) -> None:
        super().__init__()
        self.bounds, self.width, self.labels = clusters.bounds, width, here
        gates = None if priors is None else torch.from_numpy(priors.gates).float()
        labels = None if priors is None else torch.from_numpy(priors.labels).float()
        self.gates = Cluster(clusters.n_tails, width, width, shape="none", bias=gates)
        self.clusters = nn.ModuleList(
            Cluster(
                stop - start,
                width,
                tail_width(width, q, number) if number else width,
                shape=tail if number else "none",
                bias=None if labels is None else labels[start:stop],
                here=here,
            )
            for number, (start, stop) in enumerate(pairwise(clusters.bounds))
        )
        # Derived again from the stored training counts when a model is loaded.
        for name, array in (("order", clusters.order), ("ranks", clusters.ranks)):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)
        sizes = torch.tensor(clusters.sizes[1:], dtype=torch.float32)
        self.register_buffer("sizes", sizes, persistent=False)

    @property
    def n_tails(self) -> int:
        """Number of clusters except the head."""
        return len(self.clusters) - 1

    def cluster(self, number: int) -> Cluster:
        """Return the head (0) or a tail."""
        found = self.clusters[number]
        assert isinstance(found, Cluster)
        return found

    # --- training -----------------------------------------------------------------------------

    def rank_gold(self, gold: Tensor) -> Tensor:
        """Convert gold label ids (B, G) to ranks; −1 is padding."""
        return torch.where(gold >= 0, self.ranks[gold.clamp(min=0)], -1)

    def present(self, ranks: Tensor) -> Tensor:
        """Return which tails hold a label of each document (Eq. 3), (B, K)."""
        tails = [
            ((ranks >= start) & (ranks < stop)).any(1) for start, stop in pairwise(self.bounds[1:])
        ]
        return torch.stack(tails, 1) if tails else ranks.new_zeros(len(ranks), 0, dtype=torch.bool)

    def n_scored(self, present: Tensor, *, absent_gates: bool) -> Tensor:
        """Count the labels that each document's loss includes (Eq. 4), (B,)."""
        scored = self.bounds[1] + (present * self.sizes).sum(1)
        return scored + (~present).sum(1) if absent_gates else scored

    def loss(
        self,
        document: Tensor,
        gold: Tensor,
        weights: Tensor,
        *,
        limit: int,
        skip_tails: bool = True,
    ) -> Tensor:
        """Return Σ over documents of weight × (Eq. 5's sum over scored labels + absent gates).

        Args:
            document: (B, d).
            gold: (B, G) label ids, −1 for none.
            weights: (B,) fp32 weight of each document; includes the loss's denominator.
            limit: Elements of the largest (documents × labels) tensor.
            skip_tails: Compute a tail only for documents with a label in it. Otherwise the other
                documents are computed with weight 0: slower, but with fixed shapes.
        """
        ranks = self.rank_gold(gold)
        present = self.present(ranks)
        weighted = [weights * present[:, tail] for tail in range(self.n_tails)]
        rows = [inside.nonzero()[:, 0] if skip_tails else slice(None) for inside in weighted]
        # Before any loss, so that processes with slices of the labels agree on the order.
        projected = [self.cluster(t + 1).project(document[rows[t]]) for t in range(self.n_tails)]
        document, gates, *projected = self.labels.shared(
            [document, self.gates.logits(document, slice(None)).float(), *projected]
        )
        absent = functional.softplus(gates) * ~present * self.labels.first
        total = (absent.sum(1) * weights).sum() + self._head_loss(document, ranks, weights, limit)
        for tail, chosen in enumerate(rows):
            # Even without documents every parameter gets a gradient of zeros, so that the
            # optimizer behaves the same on one process and on several.
            total = total + self._tail_loss(
                tail + 1,
                projected[tail],
                gates[chosen, tail],
                ranks[chosen],
                weighted[tail][chosen],
                limit=limit,
            )
        return total

    def _head_loss(self, document: Tensor, ranks: Tensor, weights: Tensor, limit: int) -> Tensor:
        head = self.cluster(0)
        start, stop = head.here

        def chunk_loss(chunk: slice, states: Any, rows: Any) -> Tensor:
            logits = linear_logits(states[0], rows).float()
            return _weighted_bce(logits, ranks - (start + chunk.start), weights)

        chunks = label_chunks(stop - start, documents=len(document), width=1, limit=limit)
        return chunked_loss(chunk_loss, chunks, [document], head.label_tensors())

    def _tail_loss(
        self,
        number: int,
        projected: Tensor,
        gates: Tensor,
        ranks: Tensor,
        weights: Tensor,
        *,
        limit: int,
    ) -> Tensor:
        tail = self.cluster(number)
        own, stop = tail.here
        start = self.bounds[number] + own

        def chunk_loss(chunk: slice, states: Any, rows: Any) -> Tensor:
            logits = linear_logits(states[0], rows)
            return product_bce(states[1], logits, ranks - (start + chunk.start), weights)

        chunks = label_chunks(stop - own, documents=len(projected), width=1, limit=limit)
        return chunked_loss(chunk_loss, chunks, [projected, gates], tail.label_tensors())

    # --- slices of the labels -----------------------------------------------------------------

    def label_parts(self) -> list[LabelPart]:
        """Return the tensors with a row for each label of a cluster; gates are in every process."""
        numbers = range(len(self.clusters))
        return [LabelPart(self.cluster(number), ("weight", "bias")) for number in numbers]

    def use_slice(self, labels: LabelSlice) -> None:
        """Score a slice of each cluster's labels from now on."""
        self.labels = labels
        for number in range(len(self.clusters)):
            self.cluster(number).labels = labels

    def is_here(self, labels: Tensor) -> Tensor:
        """Return whether each label id is in this process; −1 is not."""
        ranks = self.rank_gold(labels)
        found = torch.zeros_like(ranks, dtype=torch.bool)
        for number, start in enumerate(self.bounds[:-1]):
            own, stop = self.cluster(number).here
            found |= (ranks >= start + own) & (ranks < start + stop)
        return found

    # --- prediction ---------------------------------------------------------------------------

    def gate_probabilities(self, document: Tensor) -> Tensor:
        """Return the probability that each tail holds a label, (B, K) fp32."""
        return torch.sigmoid(self.gates.logits(document, slice(None)).float())

    def probabilities(self, document: Tensor, labels: Tensor) -> Tensor:
        """Return fp32 probabilities (Eq. 2) of label ids (M,) shared by all, or (B, M) of each."""
        return self._gather(
            document, labels, torch.sigmoid, lambda z, gate: torch.sigmoid(z) * torch.sigmoid(gate)
        )

    def log_odds(self, document: Tensor, labels: Tensor) -> Tensor:
        """Return `log p − log(1 − p)` of labels, which takes the place of logits elsewhere."""
        return self._gather(
            document,
            labels,
            lambda z: z,
            lambda z, gate: log_product(gate, z) - log_one_minus_product(gate, z),
        )

    def _gather(
        self,
        document: Tensor,
        labels: Tensor,
        in_head: Callable[[Tensor], Tensor],
        in_tail: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Apply a function to the logits (and gates) of labels from any cluster, in fp32."""
        ranks = self.ranks[labels]
        gates = self.gates.logits(document, slice(None)).float()
        found = torch.zeros(document.shape[0], labels.shape[-1], device=document.device)
        for number, (start, stop) in enumerate(pairwise(self.bounds)):
            cluster = self.cluster(number)
            inside = (ranks >= start) & (ranks < stop)
            own, end = cluster.here
            if own == end:  # all of this cluster's labels are in other processes
                continue
            columns = (ranks - start - own).clamp(0, end - own - 1)
            logits = cluster.logits(cluster.project(document), columns).float()
            gate = gates[:, number - 1 : number]
            found = torch.where(inside, in_tail(logits, gate) if number else in_head(logits), found)
        return found


def _weighted_bce(logits: Tensor, gold: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted BCE of logits (n, C) against gold columns (n, G), summed over labels."""
    width = logits.shape[1]
    inside = (gold >= 0) & (gold < width)
    positive = (logits.gather(1, gold.clamp(0, width - 1)) * inside).sum(1)
    return ((functional.softplus(logits).sum(1) - positive) * weights).sum()
