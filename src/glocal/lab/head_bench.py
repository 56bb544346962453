"""A flat and an APLC output layer at work on made-up documents whose labels follow Zipf's law.

- a training step is forward, backward and AdamW, on the layer alone: the encoder is left out;
- gates are set by hand: `closed` for every document, `typical` (open exactly for the tails that
  hold a label of the document) or `open`;
- peak memory is what the process (or the GPU) held beyond its state before the layer was built.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import Clusters, cluster_priors, label_clusters
from glocal.losses.bce import bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks
from glocal.losses.memory import ChunkUse
from glocal.ranking.aplc_topk import aplc_topk
from glocal.ranking.topk import TopK

__all__ = [
    "FlatHead",
    "PeakMemory",
    "Workload",
    "build_clusters",
    "clustered_topk",
    "flat_topk",
    "median_seconds",
    "set_gates",
    "tail_shares",
    "timed",
    "training_step",
]

_GATE = 12.0  # logit of an open gate
_DOCUMENTS = 500_000  # training documents the label counts stand for


@dataclass(frozen=True)
class Workload:
    """Documents and their labels.

    Attributes:
        n_labels: Size of the label space; label ids are in the order of frequency.
        width: Of the document vectors.
        batch: Documents.
        per_document: Labels of each.
        exponent: Of Zipf's law.
        seed: Of the draw.
    """

    n_labels: int
    width: int = 384
    batch: int = 32
    per_document: int = 5
    exponent: float = 1.0
    seed: int = 0

    def counts(self) -> np.ndarray:
        """Training documents of each label, (L,)."""
        return np.round(self._chances() * self.per_document * _DOCUMENTS).astype(np.int64)

    def gold(self, device: torch.device) -> Tensor:
        """Labels of each document, (B, G), the same label not twice."""
        random = np.random.default_rng(self.seed)
        chances = self._chances()
        rows = [
            random.choice(self.n_labels, self.per_document, replace=False, p=chances)
            for _ in range(self.batch)
        ]
        return torch.from_numpy(np.array(rows)).to(device)

    def documents(self, device: torch.device) -> Tensor:
        """Vectors between −1 and 1, as a hidden layer with tanh gives them, (B, d)."""
        torch.manual_seed(self.seed)
        return torch.tanh(torch.randn(self.batch, self.width)).to(device)

    def _chances(self) -> np.ndarray:
        weights = 1.0 / np.arange(1, self.n_labels + 1) ** self.exponent
        chances: np.ndarray = weights / weights.sum()
        return chances


class FlatHead(nn.Module):
    """A vector at full width and a bias for each label: what APLC is compared with."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        # One cluster is a flat layer; so both predict by the same search.
        self.layer = build_clusters(workload, [1.0])

    def loss(self, document: Tensor, gold: Tensor, weights: Tensor, *, limit: int) -> Tensor:
        """BCE over all labels, the mean over documents."""

        def chunk_loss(chunk: slice, states: Any, rows: Any) -> Tensor:
            logits = functional.linear(states[0], *rows)
            return bce_chunk(logits, gold, chunk.start)

        labels = self.layer.cluster(0).label_tensors()
        chunks = label_chunks(len(labels[0]), documents=len(document), width=1, limit=limit)
        total = chunked_loss(chunk_loss, chunks, [document], labels)
        return total * weights[0]


def build_clusters(workload: Workload, partition: Sequence[float], q: float = 2.0) -> APLC:
    """An APLC layer over the workload's labels."""
    counts = workload.counts()
    clusters = label_clusters(counts, partition)
    priors = cluster_priors(clusters, counts, _DOCUMENTS)
    return APLC(clusters, width=workload.width, q=q, priors=priors)


def tail_shares(clusters: Clusters, gold: Tensor) -> list[float]:
    """The share of documents with a label in each tail: p_i of Eq. 11, for one document."""
    found = clusters.cluster_of[gold.cpu().numpy()]  # (B, G)
    return [float((found == tail).any(1).mean()) for tail in range(1, clusters.n_tails + 1)]


def training_step(
    head: FlatHead | APLC, workload: Workload, device: torch.device
) -> Callable[[], None]:
    """A function that does one optimizer step on the same batch."""
    document, gold = workload.documents(device), workload.gold(device)
    weights = torch.full((workload.batch,), 1.0 / workload.batch, device=device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-4, fused=True)
    limit = ChunkUse.CLUSTER_LOSS.limit(device.type)

    def step() -> None:
        loss = head.loss(document.requires_grad_(), gold, weights, limit=limit)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        document.grad = None

    return step


@torch.no_grad()
def set_gates(head: APLC, document: Tensor, gold: Tensor, how: str) -> Tensor:
    """Documents whose gates are `closed`, `typical` or `open`: coordinate t is gate t's logit."""
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
def flat_topk(head: FlatHead, document: Tensor, k: int) -> TopK:
    """The best k labels of a flat layer."""
    return aplc_topk(head.layer, document, k)


@torch.no_grad()
def clustered_topk(head: APLC, document: Tensor, k: int, *, prune: bool = True) -> TopK:
    """The best k labels of an APLC layer."""
    return aplc_topk(head, document, k, prune=prune)


def timed(*functions: Callable[[], Any], repeats: int, device: torch.device) -> list[list[float]]:
    """Seconds of each call, the functions in turn so that none has the machine to itself."""
    wait = torch.cuda.synchronize if device.type == "cuda" else _nothing
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(seconds, functions, strict=True):
            wait()
            started = time.perf_counter()
            function()
            wait()
            taken.append(time.perf_counter() - started)
    return seconds


def median_seconds(function: Callable[[], Any], *, repeats: int, device: torch.device) -> float:
    """The median time of a call after one to warm up."""
    return statistics.median(timed(function, repeats=repeats, device=device)[0])


def _nothing() -> None:
    """A CPU has nothing to wait for."""


class PeakMemory:
    """Bytes held at most beyond those held at the start; None where it cannot be known."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes: int | None = None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """While the block runs."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            yield
            self.bytes = torch.cuda.max_memory_allocated(self.device) - before
        elif sys.platform == "linux":
            yield from self._sample()
        else:
            yield

    def _sample(self) -> Iterator[None]:
        _give_back_freed_memory()
        before, done, seen = _resident(), threading.Event(), [0]

        def look() -> None:
            while not done.wait(0.002):
                seen[0] = max(seen[0], _resident())

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            seen[0] = max(seen[0], _resident())
            done.set()
            thread.join()
            self.bytes = max(0, seen[0] - before)


def _give_back_freed_memory() -> None:
    """What was freed but kept by the C library would be taken anew unnoticed."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _resident() -> int:
    """Bytes of this process in memory."""
    import resource

    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
