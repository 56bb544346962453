"""What every expert does, so that systems can chunk, sample and differentiate all of them alike.

An expert prepares a state once per batch and then scores label rows against it. The state holds
everything the score depends on besides the label rows, shared parameters included, so `score` is a
pure function of its inputs and the chunked loss can differentiate it chunk by chunk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from glocal.encoders.encoder import Features

__all__ = ["Expert", "State"]

State = tuple[Tensor | None, ...]


class Expert(nn.Module, ABC):
    """Scores labels from features; owns its label parameters; knows nothing of the encoder.

    Attributes:
        name: As written in the recipe, such as `A-1`.
        layers: The encoder layers whose hidden states it reads.
        label_width: Elements per (document, label) pair that scoring holds in memory.
        scores_rows: Whether any rows of its label tensors can be scored. If not, it has a `loss` of
            its own and gives log-odds in place of logits.
        trained: Whether it takes part in the training loss.
        orders_all: Whether it tells all labels apart. If not, only those it suggests are in order.
    """

    name: str
    layers: tuple[int, ...]
    label_width: int = 1
    scores_rows: bool = True
    trained: bool = True
    orders_all: bool = True

    @abstractmethod
    def prepare(self, features: Features) -> State:
        """What scoring needs of a batch, computed once."""

    @abstractmethod
    def label_tensors(self) -> tuple[Tensor, ...]:
        """The label parameters, each with the labels on its first axis."""

    @abstractmethod
    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """Logits of label rows, (B, C).

        Args:
            state: From `prepare`.
            rows: Rows of the label tensors: (C, …) shared by all documents, or (B, C, …) candidates
                of each document.
        """

    @abstractmethod
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by the name of their learning rate."""

    def loss(self, state: State, gold: Tensor, *, budget: int) -> Tensor:
        """The loss of an expert whose label rows cannot be scored one by one, summed."""
        raise NotImplementedError

    def suggestions(self, state: State) -> Tensor | None:
        """Labels it puts forward by itself, (B, S), best first; None where it does not."""
        return None

    def logits(self, state: State, labels: slice | Tensor) -> Tensor:
        """Logits of a slice of labels, or of candidate ids (B, C)."""
        return self.score(state, tuple(tensor[labels] for tensor in self.label_tensors()))


def label_bias(initial: Tensor | None, n_labels: int) -> nn.Parameter | None:
    """A bias per label at its initial value, or none."""
    if initial is None:
        return None
    assert initial.shape == (n_labels,), "one initial bias per label"
    return nn.Parameter(initial.clone().float())


def label_matrix(n_labels: int, width: int) -> nn.Parameter:
    """Label vectors from N(0, 0.02)."""
    return nn.Parameter(torch.empty(n_labels, width).normal_(0.0, 0.02))


def present(*parameters: Any) -> list[nn.Parameter]:
    """Those that are there."""
    return [p for p in parameters if p is not None]
