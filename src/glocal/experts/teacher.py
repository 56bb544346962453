"""The teacher expert `T`: log-odds of a label from the votes of similar texts.

Five numbers and a bias per label turn votes into log-odds:

    inside the scope    slope · log(v / (1 − v)) + offset + share · b_j
    a parent that no neighbour carries          parent + share · b_j
    outside                                 background + b_j

where v is the vote, between 0 and 1, and b_j starts at the training prior's log-odds. It reads no
hidden state, so no gradient reaches the encoder; its only input is the document's scope.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.encoders.encoder import Features
from glocal.experts.expert import Expert, State, label_bias, present
from glocal.experts.reader import vote_odds
from glocal.experts.scattered import at_labels
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice

_START = {"slope": 1.0, "offset": 0.0, "parent": -3.0, "share": 0.0, "background": 0.0}


class TeacherExpert(Expert):
    """Scores labels by the votes of similar texts.

    Args:
        name: Name in the recipe, `T`.
        bias: Initial label biases, (L,).
        here: The labels that this process has.
    """

    labels: Tensor

    def __init__(self, *, name: str, bias: Tensor, here: LabelSlice = EVERY_LABEL) -> None:
        super().__init__()
        self.name, self.layers = name, ()
        self.bias = label_bias(bias, len(bias), here)
        self.numbers = nn.Parameter(torch.tensor(list(_START.values())))
        # Scored together with the biases, so that each row knows its label.
        self.register_buffer("labels", torch.arange(*here.bounds(len(bias))), persistent=False)

    def prepare(self, features: Features) -> State:
        """Return scope (B, S), log-odds of votes (B, S), mask of actual votes, learnt numbers."""
        return (*vote_odds(features), self.numbers)

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Return biases and label ids, (L,) each."""
        return (*present(self.bias), self.labels)

    def label_parts(self) -> list[LabelPart] | None:
        """Return the biases and the ids of the labels, which stay those of all labels."""
        return [LabelPart(self, ("bias", "labels"))]

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """Return log-odds of label rows, (B, C)."""
        scope, odds, voted, numbers = state
        bias, labels = rows
        slope, offset, parent, share, background = numbers.unbind()
        own = torch.where(voted, slope * odds + offset, parent)  # (B, S)
        inside, own = at_labels(scope, own, labels)
        return torch.where(inside, own + share * bias, background + bias)

    def suggestions(self, state: State) -> Tensor | None:
        """Return the scope, which may include parents outside the label space."""
        labels: Tensor = state[0]
        return labels

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Group the biases apart from the learnt numbers."""
        return {"classifier": present(self.bias), "mlp": [self.numbers]}
