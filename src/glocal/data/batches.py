"""From stored tokens to batches: length buckets, padding, gold labels of fixed width.

- which documents make a batch is a pure function of (lengths, seed, epoch), so that a resumed run
  sees what an uninterrupted one would have seen;
- one optimizer step's documents are dealt out to processes and accumulation parts, and every part
  carries the number of documents the loss is averaged over;
- companions' features of the documents (a teacher's scope) come along as rows of fixed width;
- documents longer than the encoder's window go on in chunks (`data/chunks.py`), if asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from glocal.data.chunks import Chunking, Tail, tail_of

__all__ = ["Batch", "TokenSource", "collate", "deal", "epoch_batches", "prediction_batches"]

_BUCKET_BATCHES = 64  # batches whose documents are sorted by length together


class TokenSource(Protocol):
    """What batching needs of a token store."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per document."""

    def __getitem__(self, index: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Batch:
    """Documents on their way through a system."""

    input_ids: Tensor  # (B, T) int64
    attention_mask: Tensor  # (B, T) bool
    gold: Tensor  # (B, G) int64, the labels of each document, −1 where there are fewer
    positions: np.ndarray  # (B,) places of the documents in their corpus
    denominator: float  # documents the loss is averaged over
    padded: bool  # whether any token is padding
    companion_features: dict[str, Tensor] = field(default_factory=dict)  # name → (B, …)
    tail: Tail | None = None  # what lies beyond the first chunk of long documents

    def __len__(self) -> int:
        return int(self.input_ids.shape[0])

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; the copy does not block where memory is pinned."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Batch:
        """The same batch in page-locked memory."""
        return self._map(Tensor.pin_memory)

    def clone(self) -> Batch:
        """The same batch in memory of its own."""
        return self._map(Tensor.clone)

    def copy_(self, other: Batch) -> None:
        """Take over the tensors of a batch of the same shape, in place."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs, non_blocking=True)

    def tensors(self) -> tuple[Tensor, ...]:
        """What lives on the device."""
        tail = () if self.tail is None else self.tail.tensors()
        features = self.companion_features.values()
        return self.input_ids, self.attention_mask, self.gold, *tail, *features

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            input_ids=change(self.input_ids),
            attention_mask=change(self.attention_mask),
            gold=change(self.gold),
            tail=None if self.tail is None else self.tail.map(change),
            companion_features={n: change(rows) for n, rows in self.companion_features.items()},
        )


def epoch_batches(
    lengths: np.ndarray, batch_size: int, *, seed: int, epoch: int, parts: int = 1
) -> list[np.ndarray]:
    """Positions of each step's documents for one epoch, documents of like length together.

    Args:
        lengths: Tokens per document.
        batch_size: Documents per step.
        seed: Of the run.
        epoch: Which pass, from 0.
        parts: A last batch with fewer documents than this joins the one before it.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    span = batch_size * _BUCKET_BATCHES
    buckets = [order[i : i + span] for i in range(0, len(order), span)]
    batches: list[np.ndarray] = []
    for bucket in buckets:
        by_length = bucket[np.argsort(lengths[bucket], kind="stable")]
        batches += [by_length[i : i + batch_size] for i in range(0, len(by_length), batch_size)]
    if len(batches) > 1 and len(batches[-1]) < parts:
        batches[-2:] = [np.concatenate(batches[-2:])]
    return [batches[i] for i in random.permutation(len(batches))]


def deal(positions: np.ndarray, *, part: int, parts: int) -> np.ndarray:
    """One part of a step's documents, each part with like lengths."""
    return positions[part::parts]


def prediction_batches(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Positions in batches of like length, longest first, so that memory is known early."""
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def collate(
    tokens: TokenSource | Sequence[np.ndarray],
    positions: np.ndarray,
    *,
    pad_id: int,
    left: bool,
    gold: Any = None,
    n_labels: int = 0,
    denominator: float | None = None,
    multiple: int = 8,
    companion_features: Mapping[str, np.ndarray] | None = None,
    chunking: Chunking | None = None,
) -> Batch:
    """Pad documents to a common length and collect their gold labels.

    Args:
        tokens: Token ids by position.
        positions: The documents of this batch.
        pad_id: Fills the padding.
        left: Pad on the left ([CLS] is last).
        gold: CSR matrix of gold labels, where there are any.
        n_labels: Columns from here on are outside the label space and left out.
        denominator: Documents the loss is averaged over; by default those of this batch.
        multiple: Lengths that differ are padded to a multiple of this, and so are gold labels: few
            shapes let kernels and recorded graphs be used again.
        companion_features: Arrays with a row for each document of the corpus, in memory or
            memory-mapped.
        chunking: Cuts documents that are longer than the encoder's window.
    """
    sequences = [tokens[int(p)] for p in positions]
    tail = None
    if chunking is not None:
        tail = tail_of(sequences, chunking, pad_id=pad_id, multiple=multiple)
        sequences = [chunking.first(sequence) for sequence in sequences]
    lengths = np.array([len(s) for s in sequences])
    width = int(lengths.max())
    if (lengths != width).any():
        width = -(-width // multiple) * multiple
    ids = np.full((len(sequences), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(sequences), width), dtype=bool)
    for row, sequence in enumerate(sequences):
        place = slice(width - len(sequence), None) if left else slice(0, len(sequence))
        ids[row, place] = sequence
        mask[row, place] = True
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(mask),
        torch.from_numpy(_padded_gold(gold, positions, n_labels, multiple)),
        positions,
        float(len(sequences) if denominator is None else denominator),
        padded=bool((~mask).any()),
        companion_features={
            name: torch.from_numpy(rows[positions])
            for name, rows in (companion_features or {}).items()
        },
        tail=tail,
    )


def _padded_gold(gold: Any, positions: np.ndarray, n_labels: int, multiple: int) -> np.ndarray:
    """The labels of each document inside the label space, (B, G), −1 where there are fewer."""
    if gold is None:
        return np.full((len(positions), 1), -1, dtype=np.int64)
    rows = [gold.indices[gold.indptr[p] : gold.indptr[p + 1]] for p in positions]
    rows = [row[row < n_labels] for row in rows]
    width = -(-max(1, *(len(row) for row in rows)) // multiple) * multiple
    padded = np.full((len(rows), width), -1, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
