"""The sparse expert `S`: log-odds computed beforehand by the linear model of words.

The model (`glocal.companions.sparse`) reads raw texts and is fitted before the encoder is trained;
the best labels of a text and their log-odds travel with the batch. Nothing here is trained by
gradient: its weight is learnt on dev with the weights of the other experts. A label outside its
best ones gets the log-odds of the last of them, which it cannot exceed. Labels without a training
text have their own list of best ones, ranked below most others, so that they too are ranked; labels
added after training have another, so that the scores of all others stay as they were.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glocal.companions.companion import SPARSE, SPARSE_ODDS
from glocal.encoders.encoder import Features
from glocal.experts.expert import Expert, State
from glocal.experts.scattered import at_labels


class SparseExpert(Expert):
    """Scores labels by the words of the whole text.

    Args:
        name: Name in the recipe, `S`.
        n_labels: Number of labels.
        unseen: (L,) bool, labels without a training text.
        n_added: Number of labels at the end that were added after training.
    """

    labels: Tensor
    unseen: Tensor
    added: Tensor
    trained = False
    ranks_all = False

    def __init__(
        self, *, name: str, n_labels: int, unseen: Tensor | None = None, n_added: int = 0
    ) -> None:
        super().__init__()
        self.name, self.layers = name, ()
        self.register_buffer("labels", torch.arange(n_labels), persistent=False)
        none = torch.zeros(n_labels, dtype=torch.bool)
        self.register_buffer("unseen", none if unseen is None else unseen, persistent=False)
        self.register_buffer("added", self.labels >= n_labels - n_added, persistent=False)

    def prepare(self, features: Features) -> State:
        """Return the best labels (B, M) and their log-odds (B, M)."""
        found = features.companion_features
        return found[SPARSE].long(), found[SPARSE_ODDS].float()

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Return the label ids, (L,)."""
        return (self.labels,)

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """Return log-odds of label rows, (B, C)."""
        best, odds = state
        (labels,) = rows
        inside, own = at_labels(best, odds, labels)
        place, empty, highest = best.clamp(min=0), best < 0, odds.max()
        is_added = self.added[place] & ~empty
        known = (~self.unseen[place] | empty) & ~is_added

        def lowest(some: Tensor) -> Tensor:
            return torch.where(some, odds, highest).amin(1, keepdim=True)

        floor = torch.where(self.unseen[labels], lowest(~is_added), lowest(known))
        floor = torch.where(self.added[labels], lowest(is_added), floor)
        return torch.where(inside, own, floor)

    def suggestions(self, state: State) -> Tensor | None:
        """Return its best labels."""
        labels: Tensor = state[0]
        return labels

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return nothing: the sparse model is not trained by gradient."""
        return {}
