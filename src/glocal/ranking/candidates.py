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
from glocal.label_slice import LabelSlice


class Candidates(NamedTuple):
    """Labels to score for each document, with their targets and weights."""

    labels: Tensor  # (B, C) int64
    targets: Tensor  # (B, C) float
    weights: Tensor  # (B, C) float; 0 for padding and collisions

    def within(self, here: LabelSlice, n_labels: int) -> Candidates:
        """Return the candidates among the labels of this process, counted from its first."""
        if not here.sharded:
            return self
        own = (here.local(self.labels, n_labels) >= 0) & (self.weights > 0)
        most = max(1, int(own.sum(1).max()))  # so that little is computed in vain
        places = own.int().argsort(descending=True, stable=True)[:, :most]
        start, _ = here.bounds(n_labels)
        return Candidates(
            torch.where(own, self.labels - start, 0).gather(1, places),
            self.targets.gather(1, places),
            (self.weights * own).gather(1, places),
        )


def draw_candidates(
    batch: Batch, hard: Tensor | None, *, n_random: int, n_labels: int, seed: tuple[int, int]
) -> Candidates:
    """Return gold labels, hard negatives and a random sample for each document.

    Args:
        batch: The documents.
        hard: (B, h) labels that are not gold, −1 where there are fewer.
        n_random: Labels drawn for each document.
        n_labels: Size of the label space.
        seed: The run's seed and the step. With a document's position they decide its sample, which
            so depends neither on earlier steps nor on how a step is sharded.
    """
    gold = batch.gold
    known = gold if hard is None else torch.cat([gold, hard], dim=1)
    drawn = torch.from_numpy(_random_labels(batch.positions, n_random, n_labels, seed))
    drawn = drawn.to(gold.device)
    fresh = ~(drawn.unsqueeze(2) == known.unsqueeze(1)).any(2)  # (B, R)
    n_known = (known >= 0).sum(1, keepdim=True)
    scale = (n_labels - n_known) / fresh.sum(1, keepdim=True).clamp(min=1)
    labels = torch.cat([known, drawn], dim=1)
    weights = torch.cat([(known >= 0).float(), fresh * scale], dim=1)
    targets = torch.zeros_like(weights)
    targets[:, : gold.shape[1]] = batch.gold_targets()
    return Candidates(labels.clamp(min=0), targets, weights)


def cluster_candidates(gold: Tensor, picked: Tensor, *, n_labels: int) -> Candidates:
    """Return the labels of the clusters picked for each document, and its gold labels.

    Args:
        gold: (B, G) gold labels, −1 for none.
        picked: (B, C) labels of the clusters picked, without repeats, −1 for none.
        n_labels: Size of the label space.
    """
    gold_or_end = torch.where(gold >= 0, gold, n_labels)
    same = gold_or_end.unsqueeze(2) == picked.unsqueeze(1)  # (B, G, C)
    missed = (gold >= 0) & ~same.any(2)
    there = picked >= 0
    return Candidates(
        torch.cat([picked, gold], 1).clamp(min=0),
        torch.cat([same.any(1), missed], 1).float(),
        torch.cat([there, missed], 1).float(),
    )


def _random_labels(
    positions: np.ndarray, n_random: int, n_labels: int, seed: tuple[int, int]
) -> np.ndarray:
    """Return uniform labels (B, n_random), each a hash (SplitMix64) of seed, document and place."""
    (key,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    places = positions.astype(np.uint64)[:, None] * np.uint64(n_random)
    state = key + np.uint64(0x9E3779B97F4A7C15) * (places + np.arange(n_random, dtype=np.uint64))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    unit = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    labels: np.ndarray = (unit * n_labels).astype(np.int64)
    return labels
