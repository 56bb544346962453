"""Candidate labels for experts that do not score every label in training.

Each document gets its gold labels, the document expert's hardest negatives, and a uniform sample of
the rest. The sampled part stands for all the rest: its loss is scaled by
(L − |gold ∪ hard|) / (number of samples), which makes it an unbiased estimate of the full loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glocal.data.batches import Batch

__all__ = ["Candidates", "draw_candidates"]


class Candidates(NamedTuple):
    """Labels to score for each document, with their targets and weights."""

    labels: Tensor  # (B, C) int64
    targets: Tensor  # (B, C) float
    weights: Tensor  # (B, C) float; 0 for padding and collisions


def draw_candidates(
    batch: Batch, hard: Tensor | None, *, n_random: int, n_labels: int, seed: tuple[int, int]
) -> Candidates:
    """Gold labels, hard negatives and a random sample for each document.

    Args:
        batch: The documents.
        hard: (B, h) labels that are not gold, −1 where there are fewer.
        n_random: Labels drawn for each document.
        n_labels: Size of the label space.
        seed: Of the run, and the step: the draw does not depend on what came before it.
    """
    gold = batch.gold
    known = gold if hard is None else torch.cat([gold, hard], dim=1)
    random = np.random.default_rng([*seed, int(batch.positions[0])])
    drawn = torch.from_numpy(random.integers(0, n_labels, (len(batch), n_random)))
    drawn = drawn.to(gold.device)
    fresh = ~(drawn.unsqueeze(2) == known.unsqueeze(1)).any(2)  # (B, R)
    n_known = (known >= 0).sum(1, keepdim=True)
    scale = (n_labels - n_known) / fresh.sum(1, keepdim=True).clamp(min=1)
    labels = torch.cat([known, drawn], dim=1)
    weights = torch.cat([(known >= 0).float(), fresh * scale], dim=1)
    targets = torch.zeros_like(weights)
    targets[:, : gold.shape[1]] = (gold >= 0).float()
    return Candidates(labels.clamp(min=0), targets, weights)
