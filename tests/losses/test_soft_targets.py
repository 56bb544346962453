"""Soft targets in the sparse BCE, against PyTorch's own on dense targets."""

import torch
from torch.nn import functional

from glocal.losses.bce import bce_chunk

GOLD = torch.tensor([[3, 0, 41, -1], [7, 49, -1, -1]])
TARGETS = torch.tensor([[0.9, 0.2, 1.0, 0.7], [0.5, 0.01, 0.3, 0.3]])  # padding counts nothing


def dense_targets():
    dense = torch.zeros(2, 50)
    for row, (labels, values) in enumerate(zip(GOLD, TARGETS, strict=True)):
        for label, value in zip(labels, values, strict=True):
            if label >= 0:
                dense[row, label] = value
    return dense


def test_equals_dense_bce_with_soft_targets():
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    chunks = range(0, 50, 17)
    parts = [bce_chunk(ours[:, s : s + 17], GOLD, s, targets=TARGETS) for s in chunks]
    found = torch.stack(parts).sum()
    expected = functional.binary_cross_entropy_with_logits(theirs, dense_targets(), reduction="sum")
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_targets_of_one_are_gold_labels():
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    hard = bce_chunk(logits, GOLD, 0)
    torch.testing.assert_close(bce_chunk(logits, GOLD, 0, targets=torch.ones_like(TARGETS)), hard)
