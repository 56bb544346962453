"""Plain implementations that speed is measured against: correct, dense and without any care.

- label attention with every (documents, labels, tokens) and (documents, labels, width) tensor;
- a dense BCE over a (documents, labels) matrix of targets, for every expert;
- top-k over the dense matrix of probabilities.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.data.batches import Batch
from glocal.experts.label_attention import LabelAttentionExpert


def dense_targets(gold: Tensor, n_labels: int) -> Tensor:
    """Return gold labels (B, G), −1 for none, as a matrix of zeros and ones (B, L)."""
    targets = torch.zeros(len(gold), n_labels + 1, device=gold.device)
    return targets.scatter_(1, torch.where(gold >= 0, gold, n_labels), 1.0)[:, :n_labels]


def dense_bce(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the BCE, summed over labels and averaged over documents."""
    total = functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
    return total / len(targets)


def dense_label_attention(
    expert: LabelAttentionExpert, tokens: Tensor, mask: Tensor | None
) -> Tensor:
    """Return the logits of all labels (B, L), as GlocalXML's Eq. 3–6 say it.

    The tokens that a label finds are summed first, and its sum goes through the MLP, as wide as the
    encoder; nothing is folded.
    """
    assert expert.key is not None, "the recipe has projections"
    scores = expert.key(tokens) @ expert.query.T / expert.config.temperature  # (B, T, L)
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(-1), -torch.inf)
    weights = scores.softmax(1)
    found = torch.einsum("btl,bth->blh", weights, tokens)  # (B, L, H)
    logits = torch.relu(expert.mlp_in(found)) @ expert.mlp_out
    return logits if expert.bias is None else logits + expert.bias


class DenseModel(nn.Module):
    """A Hugging Face encoder with a global and a local expert, written down plainly.

    Args:
        model: The encoder.
        n_labels: Number of labels.
        local: The local expert; None for the global one alone.
    """

    def __init__(self, model: Any, n_labels: int, local: LabelAttentionExpert | None) -> None:
        super().__init__()
        self.model, self.local = model, local
        self.head = nn.Linear(int(model.config.hidden_size), n_labels)

    def logits(self, batch: Batch) -> list[Tensor]:
        """Return each expert's logits of all labels, (B, L)."""
        mask = batch.attention_mask
        states = self.model(batch.input_ids, mask.long(), output_hidden_states=True).hidden_states
        found = [self.head(states[-1][:, 0])]
        if self.local is not None:
            found.append(dense_label_attention(self.local, states[1], mask))
        return found

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        logits = self.logits(batch)
        targets = dense_targets(batch.gold, logits[0].shape[1])
        return torch.stack([dense_bce(z.float(), targets) for z in logits]).sum()

    def topk(self, batch: Batch, k: int) -> Tensor:
        """Return the best labels by the mean probability, (B, k)."""
        mean = torch.stack([torch.sigmoid(z.float()) for z in self.logits(batch)]).mean(0)
        return mean.topk(k, dim=1).indices
