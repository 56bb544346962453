"""Running top-k over label chunks, exact down to ties.

A score and its label are packed into one integer (the bits of a non-negative float order like the
float; a smaller label id wins a tie), so that top-k is unique whatever the chunking or the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_LOW = 0x7FFFFFFF


class TopK(NamedTuple):
    """Label ids and scores, best first; −1 and 0 where there are fewer than k."""

    indices: Tensor  # (B, k) int64
    scores: Tensor  # (B, k) float32


class RunningTopK:
    """Collects the best k labels while chunks of scores pass by."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.keys: Tensor | None = None

    def update(self, scores: Tensor, labels: Tensor, allowed: Tensor | None = None) -> None:
        """Add scores (B, C) of labels (C,) or (B, C); negative scores and labels are ignored."""
        keys = _pack(scores, labels)
        if allowed is not None:
            keys = torch.where(allowed[labels], keys, -1)
        keys = keys.topk(min(self.k, keys.shape[1])).values
        if self.keys is not None:
            keys = torch.cat([self.keys, keys], dim=1)
            keys = keys.topk(min(self.k, keys.shape[1])).values
        self.keys = keys

    def result(self) -> TopK:
        """Return the best labels so far."""
        assert self.keys is not None, "update was never called"
        return _unpack(self.keys)


def topk_of(scores: Tensor, labels: Tensor, k: int, allowed: Tensor | None = None) -> TopK:
    """Return the best k of scores (B, C) for labels (C,) or (B, C)."""
    running = RunningTopK(k)
    running.update(scores, labels, allowed)
    return running.result()


def _pack(scores: Tensor, labels: Tensor) -> Tensor:
    bits = scores.float().contiguous().view(torch.int32).long()
    keys = (bits << 31) | (_LOW - labels)
    return torch.where(labels >= 0, keys, -1)


def _unpack(keys: Tensor) -> TopK:
    empty = keys < 0
    labels = torch.where(empty, -1, _LOW - (keys & _LOW))
    scores = (keys >> 31).int().view(torch.float32)
    return TopK(labels, torch.where(empty, 0.0, scores))
