"""Document experts `D-n` (GlocalXML Eq. 2, ME-XML Eq. 1).

- the document vector of layer n against a vector per label: `⟨h, e_j⟩ + b_j`;
- `D-(m+n)` concatenates the document vectors of several layers;
- an optional linear pooler with tanh, and an optional hidden layer;
- optionally, label vectors that start from the labels' texts or stay tied to them
  (`tied_labels.py`);
- optionally, label clusters (`heads/aplc.py`) instead of label vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from glocal.config import DocumentConfig
from glocal.encoders.encoder import Features
from glocal.experts.expert import Expert, State, label_bias, label_matrix, present
from glocal.experts.tied_labels import LabelText, tie_parts, tied_tensors
from glocal.heads.aplc import APLC
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice


class DocumentExpert(Expert):
    """The global view: scores every label from one vector per document.

    Args:
        config: Settings of the section [document].
        name: Name in the recipe, such as `D-last`.
        layers: The layers whose document vectors are concatenated.
        hidden_size: Width of the encoder.
        n_labels: Number of labels.
        bias: Initial label biases, (L,).
        dropout: Dropout rate of the document vector.
        clusters: Builds the APLC output layer for a width; None for one vector per label.
        skip_tails: Train a tail only on the documents with a label in it.
        text: Vectors of the labels' texts, from the same layers.
        here: The labels that this process has.
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
        clusters: Callable[[int], APLC] | None = None,
        skip_tails: bool = True,
        text: LabelText | None = None,
        here: LabelSlice = EVERY_LABEL,
    ) -> None:
        super().__init__()
        self.name, self.layers = name, layers
        width = hidden_size * len(layers)
        self.dropout = nn.Dropout(dropout)
        self.pooler = nn.Linear(width, width) if config.pooler else None
        self.hidden = nn.Linear(width, config.hidden_size) if config.hidden_size else None
        inner = config.hidden_size or width
        self.head = None if clusters is None else clusters(inner)
        self.scores_rows, self.skip_tails = self.head is None, skip_tails
        self.weight = label_matrix(n_labels, inner, here) if self.scores_rows else None
        self.bias = label_bias(bias if self.scores_rows and config.bias else None, n_labels, here)
        self.tie = None
        if text is not None and self.weight is not None:
            self.tie = text.join(self.weight)

    def prepare(self, features: Features) -> State:
        """The document vector, (B, H)."""
        return self.refine(torch.cat([features.document(layer) for layer in self.layers], dim=-1))

    def refine(self, document: Tensor) -> State:
        """Apply dropout, pooler and hidden layer to the document vectors."""
        document = self.dropout(document)
        if self.pooler is not None:
            document = torch.tanh(self.pooler(document))
        if self.hidden is not None:
            document = torch.relu(self.hidden(document))
        return (document,)

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Label vectors (L, H) and biases (L,)."""
        return tied_tensors(self.tie, self.weight, self.bias)

    def label_parts(self) -> list[LabelPart] | None:
        """Return the label vectors and biases; label clusters inside a mixture are not sharded."""
        if self.head is not None:
            return None
        return [LabelPart(self, ("weight", "bias")), *tie_parts(self.tie)]

    def use_slice(self, labels: LabelSlice) -> None:
        """Tie the slice of labels to its texts."""
        if self.tie is not None:
            self.tie.labels = labels

    def logits(self, state: State, labels: slice | Tensor) -> Tensor:
        """Return logits of labels; label clusters give the log-odds of their probabilities."""
        if self.head is None:
            return super().logits(state, labels)
        (document,) = state
        if isinstance(labels, slice):
            labels = torch.arange(labels.start, labels.stop, device=document.device)
        return self.head.log_odds(document, labels)

    def loss(self, state: State, gold: Tensor, *, limit: int) -> Tensor:
        """Return the summed loss of the label clusters (APLC-XLNet Eq. 5)."""
        (document,) = state
        assert self.head is not None
        weights = torch.ones(len(document), device=document.device)
        return self.head.loss(document, gold, weights, limit=limit, skip_tails=self.skip_tails)

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """`⟨h, e_j⟩ + b_j`."""
        document: Tensor = state[0]
        weight, *bias = rows
        weight = weight.to(document.dtype)
        if weight.dim() == 3:
            logits = (weight @ document.unsqueeze(-1)).squeeze(-1)  # (B, C, H) · (B, H, 1)
        elif torch.compiler.is_exporting() or (weight.is_cuda and torch.is_grad_enabled()):
            # Label by label in memory: products stay aligned whatever the number of labels. And
            # other runtimes copy a constant on the right, but share the mapped file of one here.
            logits = (weight @ document.T).T  # (B, C)
        else:
            logits = document @ weight.T
        return logits + bias[0] if bias else logits

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Group the pooler, hidden layer and shared text projection apart from label parameters."""
        layers = (self.pooler, self.hidden, self.tie)
        shared = [p for layer in layers if layer for p in layer.parameters()]
        clusters = [] if self.head is None else list(self.head.parameters())
        return {"pooler": shared, "classifier": present(self.weight, self.bias) + clusters}
