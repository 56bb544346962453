"""The interface of experts, which lets systems chunk, sample and differentiate any of them.

An expert prepares a state once per batch and then scores label rows against it. The state holds
everything else the score depends on, shared parameters included, so `score` is a pure function of
its inputs and the chunked loss can differentiate it chunk by chunk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from glocal.encoders.encoder import Features
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice
from glocal.losses.chunked import widened

State = tuple[Any, ...]


class Expert(nn.Module, ABC):
    """Scores labels from features; owns its label parameters; knows nothing of the encoder.

    Attributes:
        name: Name in the recipe, such as `A-1`.
        layers: The encoder layers whose hidden states it reads.
        scores_rows: Whether any rows of its label tensors can be scored. If not, it defines its own
            `loss` and returns log-odds instead of logits.
        trained: Whether the training loss includes this expert.
        ranks_all: Whether the expert ranks every label, not only its suggestions.
    """

    name: str
    layers: tuple[int, ...]
    scores_rows: bool = True
    trained: bool = True
    ranks_all: bool = True

    @property
    def label_width(self) -> int:
        """Elements per (document, label) pair that scoring holds in memory."""
        return 1

    @abstractmethod
    def prepare(self, features: Features) -> State:
        """Compute once per batch everything that scoring needs."""

    @abstractmethod
    def label_tensors(self) -> tuple[Tensor, ...]:
        """Return the label parameters, each with the labels on its first axis."""

    @abstractmethod
    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """Return logits of label rows, (B, C).

        Args:
            state: From `prepare`.
            rows: Rows of the label tensors: (C, …) shared by all documents, or (B, C, …) candidates
                of each document.
        """

    @abstractmethod
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters by the name of their learning rate."""

    def label_parts(self) -> list[LabelPart] | None:
        """Return the tensors that a run may shard by labels; None if it cannot."""
        return None

    def use_slice(self, labels: LabelSlice) -> None:
        """Score a slice of the labels, whose parameters are all that is left here."""

    def loss(self, state: State, gold: Tensor, *, limit: int) -> Tensor:
        """Return the summed loss of an expert whose label rows cannot be scored one by one."""
        raise NotImplementedError

    def suggestions(self, state: State) -> Tensor | None:
        """Return the labels this expert suggests, (B, S), best first; None if it suggests none."""
        return None

    def logits(self, state: State, labels: slice | Tensor) -> Tensor:
        """Return logits of a slice of labels, or of candidate ids (B, C)."""
        return self.score(state, tuple(rows_at(t, labels) for t in self.label_tensors()))


def rows_at(tensor: Tensor, labels: slice | Tensor) -> Tensor:
    """Return the rows of a label tensor at a slice, or at candidates (B, C) of each document.

    An embedding lookup: its backward pass sums the gradients of equal rows in parallel.
    """
    if isinstance(labels, slice) or tensor.dim() != 2:
        return widened(tensor[labels])
    return widened(functional.embedding(labels, tensor))


def label_bias(
    initial: Tensor | None, n_labels: int, here: LabelSlice = EVERY_LABEL
) -> nn.Parameter | None:
    """Return a bias parameter per label of a slice at its initial value, or None."""
    if initial is None:
        return None
    assert initial.shape == (n_labels,), "one initial bias per label"
    return nn.Parameter(initial[slice(*here.bounds(n_labels))].clone().float())


def label_matrix(n_labels: int, width: int, here: LabelSlice = EVERY_LABEL) -> nn.Parameter:
    """Return the label vectors of a slice, drawn from N(0, 0.02)."""
    return nn.Parameter(here.draw(n_labels, width, 0.02))


def present(*parameters: Any) -> list[nn.Parameter]:
    """Return the parameters that are not None."""
    return [p for p in parameters if p is not None]
