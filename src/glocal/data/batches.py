"""Batches: buckets of similar length, padding, gold labels and companions' features.

- The documents of a batch are a pure function of (lengths, seed, epoch), so that a resumed run sees
  the same batches as an uninterrupted one.
- The documents of one optimizer step are sharded over processes and accumulation parts; every part
  carries the number of documents the loss is averaged over.
- Companions' features of the documents (a teacher's scope) come along as rows of fixed width.
- Documents longer than the encoder's window are cut into chunks (`data/chunks.py`), if asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from glocal.data.chunks import (
    Chunking,
    Continuation,
    continuation_arrays,
    padded_rows,
    rounded,
)
from glocal.data.tokens import TokenStore

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_CERTAIN = 0.5  # target from which a label is a text's own
_BUCKET_BATCHES = 64  # batches whose documents are sorted by length together


@dataclass(frozen=True)
class Batch:
    """Documents as a system reads them."""

    input_ids: Tensor  # (B, T) int64
    attention_mask: Tensor  # (B, T) bool
    gold: Tensor  # (B, G) int64, the labels of each document, −1 where there are fewer
    positions: np.ndarray  # (B,) places of the documents in their corpus
    denominator: float  # documents the loss is averaged over
    padded: bool  # whether any token is padding
    companion_features: dict[str, Tensor] = field(default_factory=dict)  # name → (B, …)
    continuation: Continuation | None = None  # tokens beyond the first chunk of long documents
    targets: Tensor | None = None  # (B, G) fp32, the target of each gold label; None: 1

    def __len__(self) -> int:
        return int(self.input_ids.shape[0])

    def gold_targets(self) -> Tensor:
        """Return the target of each gold label, (B, G) fp32; 0 at padding."""
        there = (self.gold >= 0).float()
        return there if self.targets is None else there * self.targets

    def own_labels(self) -> Tensor:
        """Return the gold labels without those of a low target, (B, G), −1 for none."""
        return self.gold.masked_fill(self.gold_targets() < _CERTAIN, -1)

    def to(self, device: torch.device) -> Batch:
        """Copy the batch to a device, without blocking where memory is pinned."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Batch:
        """Copy the batch to page-locked memory."""
        return self._map(lambda tensor: tensor.pin_memory())

    def clone(self) -> Batch:
        """Copy the batch."""
        return self._map(lambda tensor: tensor.clone())

    def copy_(self, other: Batch) -> None:
        """Overwrite the tensors with those of a batch of the same shape."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs, non_blocking=True)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors."""
        continuation = () if self.continuation is None else self.continuation.tensors()
        targets = () if self.targets is None else (self.targets,)
        features = self.companion_features.values()
        return self.input_ids, self.attention_mask, self.gold, *targets, *continuation, *features

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            input_ids=change(self.input_ids),
            attention_mask=change(self.attention_mask),
            gold=change(self.gold),
            targets=None if self.targets is None else change(self.targets),
            continuation=None if self.continuation is None else self.continuation.map(change),
            companion_features={n: change(rows) for n, rows in self.companion_features.items()},
        )


def epoch_batches(
    lengths: np.ndarray, batch_size: int, *, seed: int, epoch: int, parts: int = 1
) -> list[np.ndarray]:
    """Return the positions of each step's documents for one epoch, similar lengths together.

    Args:
        lengths: Tokens per document.
        batch_size: Documents per step.
        seed: Random seed of the run.
        epoch: Number of the epoch, from 0.
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


def shard(positions: np.ndarray, *, part: int, parts: int) -> np.ndarray:
    """Return one part of a step's documents; all parts have similar lengths."""
    return positions[part::parts]


def prediction_batches(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yield positions in batches of similar length, longest first: memory peaks early."""
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


class Padding(Protocol):
    """The facts about a tokenizer that padding depends on."""

    @property
    def pad_id(self) -> int:
        """The token id that fills the padding."""

    @property
    def cls_last(self) -> bool:
        """Whether [CLS] is the last token, so that padding is on the left."""


@dataclass(frozen=True)
class Collator:
    """Turns positions of documents into batches.

    Args:
        tokens: Token ids of the documents.
        padding: Facts about the tokenizer.
        gold: CSR matrix of gold labels, where there are any.
        n_labels: Columns of `gold` from here on are outside the label space and skipped.
        companion_features: Arrays with a row for each document, in memory or memory-mapped.
        chunking: Cuts documents that are longer than the encoder's window.
        targets: CSR matrix of soft targets; its labels take the place of gold labels in batches.
    """

    tokens: TokenStore
    padding: Padding
    gold: Any = None
    n_labels: int = 0
    companion_features: Mapping[str, np.ndarray] = field(default_factory=dict)
    chunking: Chunking | None = None
    targets: Any = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __call__(
        self, positions: np.ndarray, *, denominator: float | None = None, multiple: int = 8
    ) -> Batch:
        """Pad documents to a common length and collect their gold labels and features.

        Args:
            positions: The documents of the batch.
            denominator: Documents the loss is averaged over; by default those of the batch.
            multiple: Lengths that differ are padded to a multiple of this, and so are gold labels:
                with few shapes, kernels and recorded graphs can be used again.
        """
        import torch

        ids, mask, further = self.padded(positions, multiple=multiple)
        features = self.companion_features.items()
        known = self.gold if self.targets is None else self.targets
        gold, targets = _padded_gold(known, positions, self.n_labels, multiple)
        return Batch(
            torch.from_numpy(ids),
            torch.from_numpy(mask),
            torch.from_numpy(gold),
            positions,
            float(len(positions) if denominator is None else denominator),
            padded=bool((~mask).any()),
            companion_features={n: torch.from_numpy(rows[positions]) for n, rows in features},
            continuation=(
                None if further is None else Continuation(*map(torch.from_numpy, further))
            ),
            targets=None if self.targets is None else torch.from_numpy(targets),
        )

    def padded(
        self, positions: np.ndarray, *, multiple: int = 8
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return token ids (B, T), where they are not padding, and the arrays of a `Continuation`.

        Args:
            positions: The documents.
            multiple: Lengths that differ are padded to a multiple of this.
        """
        sequences = [self.tokens[int(position)] for position in positions]
        further = None
        if self.chunking is not None:
            further = continuation_arrays(
                sequences, self.chunking, pad_id=self.padding.pad_id, multiple=multiple
            )
            sequences = [self.chunking.first(sequence) for sequence in sequences]
        return *padded_tokens(sequences, self.padding, multiple=multiple), further


def padded_tokens(
    sequences: Sequence[np.ndarray], padding: Padding, *, multiple: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids (B, T) int64 of one length, and where they are not padding, (B, T) bool.

    Args:
        sequences: Token ids of each document.
        padding: Facts about the tokenizer.
        multiple: Lengths that differ are padded to a multiple of this.
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    width = int(lengths.max())
    if (lengths != width).any():
        width = rounded(width, multiple)
    ids = np.full((len(sequences), width), padding.pad_id, dtype=np.int64)
    mask = np.zeros((len(sequences), width), dtype=bool)
    for row, sequence in enumerate(sequences):
        start = width - len(sequence) if padding.cls_last else 0
        place = slice(start, start + len(sequence))
        ids[row, place] = sequence
        mask[row, place] = True
    return ids, mask


def _padded_gold(
    gold: Any, positions: np.ndarray, n_labels: int, multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of each document inside the label space, (B, G), −1 for none; and values.

    The values are those of the matrix, (B, G) fp32, 0 where there is no label.
    """
    if gold is None:
        empty = np.full((len(positions), 1), -1, dtype=np.int64)
        return empty, np.zeros(empty.shape, dtype=np.float32)
    parts = [slice(gold.indptr[p], gold.indptr[p + 1]) for p in positions]
    kept = [gold.indices[part] < n_labels for part in parts]
    labels = [gold.indices[part][inside] for part, inside in zip(parts, kept, strict=True)]
    padded = padded_rows(labels, rounded(max(1, *map(len, labels)), multiple))
    values = np.zeros(padded.shape, dtype=np.float32)
    for row, part, inside in zip(values, parts, kept, strict=True):
        row[: inside.sum()] = gold.data[part][inside]
    return padded, values
