"""Reader experts `R-n` (TReaderXML): the dual network reads the tokens of layer n and the teacher.

- the text is the hidden states of layer n (layer 0 of static word vectors are the vectors);
- the teacher is the sequence of labels in a document's scope, most likely first; each label's
  vector is initialised at the mean word vector of its description;
- the network's document vector is scored against a vector per label, as in a document expert;
- with `reader.prior`, votes add to the scores of their labels, weighted by three learnt numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.companions.companion import SCOPE, SCOPE_WEIGHT
from glocal.config import DocumentConfig, ReaderConfig
from glocal.config.reader_configurations import CONFIGURATIONS
from glocal.encoders.encoder import Features
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import State
from glocal.experts.reading_network import DualNetwork, masked_mean
from glocal.experts.scattered import at_labels
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice

_LARGEST = 0.99  # votes are clipped here, since the log-odds of 1 are infinite


class ReaderExpert(DocumentExpert):
    """Scores labels from one document vector, computed with the teacher's help.

    Args:
        config: Settings of the section [reader].
        document: Settings of the output layer.
        name: Name in the recipe, such as `R-last`.
        layer: The layer whose tokens are read.
        hidden_size: Width of the encoder.
        label_vectors: (T, D) initial vectors of the teacher's labels; None without a teacher.
        options: Further arguments of `DocumentExpert`; the tokens also have its dropout.
    """

    def __init__(
        self,
        config: ReaderConfig,
        document: DocumentConfig,
        *,
        name: str,
        layer: int,
        hidden_size: int,
        label_vectors: np.ndarray | None,
        **options: Any,
    ) -> None:
        width = config.bottleneck or hidden_size
        super().__init__(document, name=name, layers=(layer,), hidden_size=width, **options)
        configuration = CONFIGURATIONS[config.configuration]
        self.network = DualNetwork(
            hidden_size,
            config.heads,
            configuration,
            bottleneck=width,
            pooling=config.pooling,
            residual=config.residual,
        )
        self.scope = None
        if configuration.teacher:
            assert label_vectors is not None, "a teacher goes with this configuration"
            self.scope = ScopeEncoding(config, label_vectors, hidden_size)
        self.prior = None
        if configuration.teacher and config.prior:
            assert self.head is None, "votes go with a vector for each label"
            here = options.get("here", EVERY_LABEL)
            self.prior = VotePrior(options["n_labels"], here)

    def prepare(self, features: Features) -> State:
        """Compute document vectors (B, bottleneck) and, with a prior, the weight of each vote."""
        (layer,) = self.layers
        tokens = self.dropout(features.hidden[layer])
        scope = (None, None) if self.scope is None else self.scope(features)
        state = self.refine(self.network(tokens, features.mask, *scope))
        return state if self.prior is None else (*state, *self.prior.prepare(features))

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Return label vectors (L, H), biases (L,) and, with a prior, label ids (L,)."""
        tensors = super().label_tensors()
        return tensors if self.prior is None else (*tensors, self.prior.labels)

    def label_parts(self) -> list[LabelPart] | None:
        """Return the label vectors and biases and, with a prior, the ids of the labels."""
        parts = super().label_parts()
        if parts is None or self.prior is None:
            return parts
        return [*parts, LabelPart(self.prior, ("labels",))]

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """Return `⟨h, e_j⟩ + b_j`, plus the vote prior if there is one."""
        if self.prior is None:
            return super().score(state, rows)
        document, *votes = state
        *rows_of_labels, labels = rows
        return super().score((document,), tuple(rows_of_labels)) + vote_prior(votes, labels)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Group attentions, bottleneck and projection, teacher labels and output layer."""
        groups = super().parameter_groups()
        network = self.network
        readings = [network.text, network.interaction, network.teacher]
        groups["attention"] = [p for part in readings if part for p in part.parameters()]
        groups["pooler"] = [*groups["pooler"], *network.bottleneck.parameters()]
        if self.scope is not None:
            table = [p for p in (self.scope.table,) if isinstance(p, nn.Parameter)]
            rest = [p for p in self.scope.parameters() if all(p is not t for t in table)]
            groups["pooler"] += rest
            groups["queries"] = table
        if self.prior is not None:
            groups["mlp"] = list(self.prior.parameters())
        return groups


class VotePrior(nn.Module):
    """Adds `slope · log(v / (1 − v)) + offset` to the score of a label with vote v.

    A parent that no neighbour carries adds `parent`; a label outside the scope adds nothing.

    Args:
        n_labels: Size of the label space; the teacher may know further labels.
        here: The labels that this process has.
    """

    labels: Tensor

    def __init__(self, n_labels: int, here: LabelSlice = EVERY_LABEL) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor([0.5, 1.5, 0.0]))  # slope, offset, parent
        # Scored together with the label vectors, so that each row knows its label.
        self.register_buffer("labels", torch.arange(*here.bounds(n_labels)), persistent=False)

    def prepare(self, features: Features) -> tuple[Tensor, Tensor]:
        """Return the scope and the prior of each of its labels, (B, S) each."""
        scope, odds, voted = vote_odds(features)
        slope, offset, parent = self.numbers.unbind()
        return scope, torch.where(voted, slope * odds + offset, parent)


def vote_odds(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scope, the log-odds of its votes, and a mask of actual votes, (B, S) each."""
    found = features.companion_features
    votes = found[SCOPE_WEIGHT].float()
    return found[SCOPE].long(), torch.logit(votes.clamp(1e-4, _LARGEST)), votes > 0


def vote_prior(votes: Sequence[Tensor], labels: Tensor) -> Tensor:
    """Return the vote prior at labels, (B, C)."""
    scope, counts = votes
    return at_labels(scope, counts, labels)[1]


class ScopeEncoding(nn.Module):
    """Encodes the teacher's scope as a sequence of label vectors with a mask.

    Args:
        config: Settings of the section [reader].
        label_vectors: (T, D) initial vectors.
        width: Output width; vectors of another width are projected.
    """

    def __init__(self, config: ReaderConfig, label_vectors: np.ndarray, width: int) -> None:
        super().__init__()
        self.mean = config.scope == "mean"
        start = torch.from_numpy(np.array(label_vectors, dtype=np.float32))
        if config.label_vectors == "learned":
            self.table: Tensor = nn.Parameter(start)
        else:
            self.register_buffer("table", start)
        inner = start.shape[1]
        self.project = None if inner == width else nn.Linear(inner, width, bias=False)
        self.vote = nn.Parameter(torch.zeros(width)) if config.votes else None

    def forward(self, features: Features) -> tuple[Tensor, Tensor]:
        """Return vectors (B, S, H) and mask (B, S); S is 1 if the mean is taken."""
        found = features.companion_features
        labels, votes = found[SCOPE].long(), found[SCOPE_WEIGHT]
        # On a GPU this would force a sync; in an exported graph no shape may depend on the data.
        if labels.device.type == "cpu" and not torch.compiler.is_exporting():
            widest = max(1, int((labels >= 0).any(0).sum()))
            labels, votes = labels[:, :widest], votes[:, :widest]
        mask = labels >= 0
        vectors = functional.embedding(labels.clamp(min=0), self.table)  # (B, S, D)
        if self.project is not None:
            vectors = self.project(vectors)
        if self.vote is not None:
            vectors = vectors + votes.unsqueeze(-1) * self.vote
        if self.mean:  # Algorithm 1, line 8
            return masked_mean(vectors, mask).unsqueeze(1), mask.any(1, keepdim=True)
        return vectors, mask
