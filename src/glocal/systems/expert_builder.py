"""Building an expert from its name in a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.config import Recipe
from glocal.config.expert_names import SPARSE_EXPERT, TEACHER, ExpertSpec
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import Expert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.experts.reader import ReaderExpert
from glocal.experts.sparse import SparseExpert
from glocal.experts.teacher import TeacherExpert
from glocal.experts.tied_labels import LabelText
from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import label_clusters
from glocal.log_odds import log_odds
from glocal.systems.aplc_xlnet import build_aplc
from glocal.systems.system import LabelStatistics


class ExpertBuilder:
    """Builds the experts of a recipe, one by one.

    Args:
        recipe: The settings.
        hidden_size: Width of the encoder.
        bias: Initial label biases, (L,).
        statistics: Counts and text vectors of the labels, vectors of the teacher's labels.
    """

    def __init__(
        self, recipe: Recipe, hidden_size: int, bias: Tensor, statistics: LabelStatistics
    ) -> None:
        self.recipe, self.bias, self.statistics = recipe, bias, statistics
        self.hidden_size = hidden_size
        self.common: dict[str, Any] = {
            "hidden_size": hidden_size,
            "n_labels": len(bias),
            "bias": bias,
            "dropout": recipe.encoder.dropout,
            "here": statistics.here,
        }

    def __call__(self, spec: ExpertSpec) -> Expert:
        """Return the expert of a name."""
        recipe, common = self.recipe, {"name": spec.name, **self.common}
        if spec.kind == TEACHER:
            return TeacherExpert(name=spec.name, bias=self.bias, here=self.statistics.here)
        if spec.kind == SPARSE_EXPERT:
            unseen = torch.from_numpy(np.asarray(self.statistics.counts) == 0)
            n_added = self.statistics.n_added
            return SparseExpert(
                name=spec.name, n_labels=len(self.bias), unseen=unseen, n_added=n_added
            )
        common["text"] = self._text(spec.layers)
        if spec.kind == "A":
            return LabelAttentionExpert(recipe.attention, layer=spec.layers[0], **common)
        common |= {"clusters": self._clusters(), "skip_tails": recipe.aplc.skip_tails}
        if spec.kind == "D":
            return DocumentExpert(recipe.document, layers=spec.layers, **common)
        return ReaderExpert(
            recipe.reader,
            recipe.document,
            layer=spec.layers[0],
            label_vectors=self.statistics.teacher_vectors,
            **common,
        )

    def _text(self, layers: Sequence[int]) -> LabelText | None:
        """Return the label texts in the layers an expert reads; None where they are not used."""
        config, encoded = self.recipe.labels, self.statistics.text_vectors
        if config.text == "off" or (config.text == "start" and encoded is None):
            return None
        if encoded is None:  # the weights are to be loaded
            blank = np.zeros((len(self.bias), self.hidden_size), dtype=np.float32)
            encoded = dict.fromkeys(layers, blank)
        return LabelText(
            torch.from_numpy(np.concatenate([encoded[layer] for layer in layers], axis=1)),
            torch.from_numpy(np.array(self.statistics.counts)),
            tied=config.text == "tied",
            dropout=config.text_dropout,
            worth=config.text_worth,
            here=self.statistics.here,
        )

    def _clusters(self) -> Callable[[int], APLC] | None:
        """Return a function that builds the output layer for a width; None where it is flat."""
        config = self.recipe.aplc
        if self.recipe.document.head != "aplc":
            return None
        clusters = label_clusters(self.statistics.counts, config.partition)
        return lambda width: build_aplc(config, clusters, width, self.statistics)


def initial_bias(setting: str, statistics: LabelStatistics) -> Tensor:
    """Return initial label biases, (L,): the training prior's log-odds, or a constant."""
    if setting == "prior":
        counts = statistics.counts.astype(np.float64)
        prior = (counts + 0.5) / (statistics.n_documents + 1.0)
        return torch.from_numpy(log_odds(prior)).float()
    return torch.full((statistics.n_labels,), float(setting))
