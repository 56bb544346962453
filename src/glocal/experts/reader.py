"""Reader experts `R-n` (TReaderXML): the dual network reads the tokens of layer n and the teacher.

- the text is the hidden states of layer n (layer 0 of static word vectors are the vectors);
- the teacher is the sequence of the labels in a document's scope, likeliest first, each with a
  vector that starts at the mean word vector of its description;
- the network's vector for the document meets a vector per label, as in a document expert;
- with a prior, labels that were voted for start from there: three learnt numbers say how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.companions.feature_names import SCOPE, SCOPE_WEIGHT
from glocal.config import DocumentConfig, ReaderConfig
from glocal.config.reader_configurations import CONFIGURATIONS
from glocal.encoders.encoder import Features
from glocal.errors import ConfigError
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import State
from glocal.experts.reading_network import DualNetwork, masked_mean
from glocal.experts.scattered import at_labels

__all__ = ["ReaderExpert", "ScopeEncoding", "vote_odds"]

_LARGEST = 0.99  # a vote counts at most this much: the log-odds of 1 are infinite


class ReaderExpert(DocumentExpert):
    """One vector stands for the document, read with a teacher's help.

    Args:
        config: Its options.
        document: Options of the output layer.
        name: As written in the recipe.
        layer: The layer whose tokens are read.
        hidden_size: Width of the encoder.
        label_vectors: (T, D) where the vectors of the teacher's labels start; `None` without one.
        dropout: On the tokens and on the document vector.
        options: For `DocumentExpert`: labels, biases, clusters.
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
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        width = config.bottleneck or hidden_size
        super().__init__(
            document, name=name, layers=(layer,), hidden_size=width, dropout=dropout, **options
        )
        configuration = CONFIGURATIONS[config.configuration]
        if hidden_size % config.heads:
            raise ConfigError(
                f"'reader.heads' = {config.heads} does not divide the encoder's width of "
                f"{hidden_size}; choose a number that does"
            )
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
            if self.head is not None:
                raise ConfigError(
                    "'reader.prior' = true goes with a vector for each label, not with label "
                    "clusters; set reader.prior=false or document.head=flat"
                )
            self.prior = VotePrior(options["n_labels"])

    def prepare(self, features: Features) -> State:
        """What the network makes of the documents (B, bottleneck), and what the votes count."""
        (layer,) = self.layers
        tokens = self.dropout(features.hidden[layer])
        scope = (None, None) if self.scope is None else self.scope(features)
        state = self.refine(self.network(tokens, features.mask, *scope))
        return state if self.prior is None else (*state, *self.prior.prepare(features))

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Label vectors (L, H), biases (L,) and, with a prior, the labels' ids (L,)."""
        tensors = super().label_tensors()
        return tensors if self.prior is None else (*tensors, self.prior.labels)

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """`⟨h, e_j⟩ + b_j`, and what the votes count."""
        if self.prior is None:
            return super().score(state, rows)
        document, *votes = state
        *rows_of_labels, labels = rows
        return super().score((document,), tuple(rows_of_labels)) + vote_prior(votes, labels)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Attentions, bottleneck and projection, teacher's labels, output layer."""
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
    """What votes count towards the scores of their labels: `slope · log(v / (1 − v)) + offset`.

    A parent no neighbour has itself counts `parent`, any other label nothing.

    Args:
        n_labels: In the label space; the teacher may know labels beyond it.
    """

    labels: Tensor

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor([0.5, 1.5, 0.0]))  # slope, offset, parent
        # Rows know their labels by this: a slice or candidates of it go along with the vectors.
        self.register_buffer("labels", torch.arange(n_labels), persistent=False)

    def prepare(self, features: Features) -> tuple[Tensor, Tensor]:
        """The scope and what each of its labels counts, (B, S) each."""
        scope, odds, voted = vote_odds(features)
        slope, offset, parent = self.numbers.float().unbind()
        return scope, torch.where(voted, slope * odds + offset, parent)


def vote_odds(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """The scope, its votes' log-odds, and which of them are votes at all, (B, S) each."""
    votes = features.extra[SCOPE_WEIGHT].float()
    return features.extra[SCOPE].long(), torch.logit(votes.clamp(1e-4, _LARGEST)), votes > 0


def vote_prior(votes: Sequence[Tensor | None], labels: Tensor) -> Tensor:
    """What the votes count at labels, (B, C)."""
    scope, counts = votes
    assert scope is not None
    assert counts is not None
    return at_labels(scope, counts, labels)[1]


class ScopeEncoding(nn.Module):
    """The teacher's side of the encoding: a sequence of label vectors and its mask.

    Args:
        config: The reader's options.
        label_vectors: (T, D) where the vectors start.
        width: Of what comes out; a projection leads there from another width.
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
        """Vectors (B, S, H) and mask (B, S); S is 1 where their mean is taken."""
        labels, votes = features.extra[SCOPE].long(), features.extra[SCOPE_WEIGHT]
        if labels.device.type == "cpu":  # a GPU would have to be waited for
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
