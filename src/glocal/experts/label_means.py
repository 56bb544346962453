"""Mean hidden states of each label's training texts, accumulated batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor


class LabelMeans:
    """Accumulates sums over batches and turns them into means at the end.

    Args:
        n_labels: Number of labels.
        width: Width of the hidden states.
        device: Device of the hidden states.

    Attributes:
        by_label: (L, H) mean over a label's texts of each text's mean token.
        overall: (H,) mean token of all texts.
        counts: (L,) number of texts of each label.
    """

    def __init__(self, n_labels: int, width: int, device: torch.device) -> None:
        self.by_label = torch.zeros(n_labels, width, device=device)
        self.counts = torch.zeros(n_labels, device=device)
        self.overall = torch.zeros(width, device=device)
        self.products = torch.zeros(width, width, device=device)
        self.n_tokens = torch.zeros((), device=device)

    def add(self, tokens: Tensor, mask: Tensor, gold: Tensor) -> None:
        """Add hidden states (B, T, H), their mask (B, T) and gold labels (B, G)."""
        weights = mask.unsqueeze(-1)
        tokens = tokens.float() * weights
        sums = tokens.sum(1)  # (B, H)
        self.overall += sums.sum(0)
        self.products += tokens.flatten(0, 1).T @ tokens.flatten(0, 1)
        self.n_tokens += weights.sum()
        means = sums / weights.sum(1)
        rows, places = (gold >= 0).nonzero(as_tuple=True)
        labels = gold[rows, places]
        self.by_label.index_add_(0, labels, means[rows])
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float32))

    def finish(self) -> LabelMeans:
        """Turn the sums into means."""
        self.by_label /= self.counts.clamp(min=1)[:, None]
        self.overall /= self.n_tokens.clamp(min=1)
        self.products /= self.n_tokens.clamp(min=1)
        return self

    def covariance(self) -> Tensor:
        """Return the covariance of the tokens, (H, H); call `finish` first."""
        return self.products - torch.outer(self.overall, self.overall)
