"""Document experts `D-n` (GlocalXML Eq. 2, ME-XML Eq. 1).

- the document vector of layer n against a vector per label: `⟨h, e_j⟩ + b_j`;
- `D-(m+n)` concatenates the document vectors of several layers;
- an optional linear pooler with tanh, and an optional hidden layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.config import DocumentConfig
from glocal.encoders.encoder import Features
from glocal.experts.base import Expert, State, label_bias, label_matrix, present

__all__ = ["DocumentExpert"]


class DocumentExpert(Expert):
    """The global view: one vector stands for the document.

    Args:
        config: Its options.
        name: As written in the recipe.
        layers: The layers whose document vectors are concatenated.
        hidden_size: Width of the encoder.
        n_labels: Number of labels.
        bias: Initial label biases, (L,).
        dropout: On the document vector.
    """

    def __init__(
        self,
        config: DocumentConfig,
        *,
        name: str,
        layers: tuple[int, ...],
        hidden_size: int,
        n_labels: int,
        bias: Tensor,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.name, self.layers = name, layers
        width = hidden_size * len(layers)
        self.dropout = nn.Dropout(dropout)
        self.pooler = nn.Linear(width, width) if config.pooler else None
        self.hidden = nn.Linear(width, config.hidden_size) if config.hidden_size else None
        self.weight = label_matrix(n_labels, config.hidden_size or width)
        self.bias = label_bias(bias if config.bias else None, n_labels)

    def prepare(self, features: Features) -> State:
        """The document vector, (B, H)."""
        document = torch.cat([features.document(layer) for layer in self.layers], dim=-1)
        document = self.dropout(document)
        if self.pooler is not None:
            document = torch.tanh(self.pooler(document))
        if self.hidden is not None:
            document = torch.relu(self.hidden(document))
        return (document,)

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Label vectors (L, H) and biases (L,)."""
        return tuple(present(self.weight, self.bias))

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """`⟨h, e_j⟩ + b_j`."""
        (document,) = state
        assert document is not None
        weight, *bias = rows
        if weight.dim() == 2:
            logits = document @ weight.T  # (B, C)
        else:
            logits = (weight @ document.unsqueeze(-1)).squeeze(-1)  # (B, C, H) · (B, H, 1)
        return logits + bias[0] if bias else logits

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Pooler and hidden layer apart from the label parameters."""
        shared = [p for layer in (self.pooler, self.hidden) if layer for p in layer.parameters()]
        return {"pooler": shared, "classifier": present(self.weight, self.bias)}
