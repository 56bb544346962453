"""APLC-XLNet: an encoder, a hidden layer, and adaptive probabilistic label clusters.

    encoder → document vector → Linear → tanh → dropout → APLC (a head, gates, ever narrower tails)

XLNet is the published encoder ([CLS] last, padding on the left); any other can be used. Each of the
three parts has its own learning rate (4.1): `encoder` η_x, `pooler` η_h, `classifier` η_a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.config import AplcConfig
from glocal.config.expert_names import ExpertSpec
from glocal.config.resolve import ResolvedRecipe
from glocal.data.batches import Batch
from glocal.encoders.encoder import Encoder
from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import Clusters, cluster_priors, label_clusters
from glocal.label_slice import LabelPart, LabelSlice
from glocal.losses.memory import ChunkUse
from glocal.ranking.aplc_topk import aplc_topk
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.ranker import Ranked
from glocal.ranking.topk import TopK, topk_of
from glocal.systems.system import LabelStatistics, System, TrainingPosition


def build_aplc(
    config: AplcConfig, clusters: Clusters, width: int, statistics: LabelStatistics
) -> APLC:
    """Build the output layer over labels with these training counts."""
    priors = cluster_priors(clusters, statistics.counts, statistics.n_documents)
    return APLC(
        clusters,
        width=width,
        q=config.q,
        tail=config.tail,
        priors=priors if config.bias else None,
        here=statistics.here,
    )


class APLCXLNet(System):
    """One document vector, scored by label clusters.

    Args:
        recipe: The settings.
        encoder: Computes the hidden states.
        experts: One document expert, such as `D-last`: its layers make the document vector.
        statistics: Training label counts.
    """

    def __init__(
        self,
        recipe: ResolvedRecipe,
        encoder: Encoder,
        experts: Sequence[ExpertSpec],
        statistics: LabelStatistics,
    ) -> None:
        super().__init__()
        self.recipe, self.encoder, self.n_labels = recipe, encoder, statistics.n_labels
        self.labels_here = statistics.here
        self.expert_names, self.layers = [experts[0].name], experts[0].layers
        width = encoder.hidden_size * len(self.layers)
        inner = recipe.aplc.hidden_size or width
        self.hidden = nn.Sequential(
            nn.Linear(width, inner), nn.Tanh(), nn.Dropout(recipe.encoder.dropout)
        )
        self.clusters = label_clusters(statistics.counts, recipe.aplc.partition)
        self.head = build_aplc(recipe.aplc, self.clusters, inner, statistics)
        if recipe.encoder.freeze:
            encoder.requires_grad_(False)

    def prepare(self, batch: Batch) -> Tensor:
        """Return the vectors that labels are scored from, (B, d_h)."""
        features = self.features(batch)
        document: Tensor = self.hidden(
            torch.cat([features.document(layer) for layer in self.layers], dim=-1)
        )
        return document

    # --- training -----------------------------------------------------------------------------

    def training_step(self, batch: Batch, position: TrainingPosition) -> Tensor:
        """Return the loss of Eq. 5 and of the absent gates, reduced as the recipe says."""
        config = self.recipe.aplc
        document = self.prepare(batch)
        limit = self.recipe.train.chunk_elements or ChunkUse.CLUSTER_LOSS.limit(
            document.device.type
        )
        loss = self.head.loss(
            document,
            batch.gold,
            self._weights(batch),
            limit=limit,
            skip_tails=config.skip_tails,
        )
        return self.labels_here.total(loss)

    def label_parts(self) -> list[LabelPart]:
        """Return the label vectors and biases of every cluster."""
        return self.head.label_parts()

    def use_slice(self, labels: LabelSlice) -> None:
        """Score a slice of each cluster's labels from now on."""
        super().use_slice(labels)
        self.head.use_slice(labels)

    def _weights(self, batch: Batch) -> Tensor:
        """Return the weight of each document's loss, (B,) fp32: one over its divisor."""
        if self.recipe.aplc.reduction != "document":
            return torch.full((len(batch),), 1.0 / batch.denominator, device=batch.gold.device)
        present = self.head.present(self.head.rank_gold(batch.gold))
        return 1.0 / (self.head.n_scored(present, absent_gates=True) * batch.denominator)

    def denominator(self, gold: Any, positions: np.ndarray) -> float:
        """Return the number of documents, or for Eq. 5's ratio the labels their losses visit."""
        if self.recipe.aplc.reduction != "ratio":
            return super().denominator(gold, positions)
        rows = (gold.indices[gold.indptr[p] : gold.indptr[p + 1]] for p in positions)
        return float(sum(self.clusters.n_visited(row[row < self.n_labels]) for row in rows))

    @property
    def supports_cuda_graphs(self) -> bool:
        """Whether shapes are fixed (every document in every tail) and the divisor is too."""
        fixed = not self.recipe.aplc.skip_tails and self.recipe.aplc.reduction != "ratio"
        return fixed and not self.labels_here.sharded

    # --- prediction ---------------------------------------------------------------------------

    def expert_logits(self, states: Tensor, labels: slice | Tensor) -> dict[str, Tensor]:
        """Return the log-odds of labels."""
        if isinstance(labels, slice):
            labels = torch.arange(labels.start, labels.stop, device=states.device)
        with torch.autocast(states.device.type, enabled=False):
            return {self.expert_names[0]: self.head.log_odds(states.float(), labels)}

    def rank(self, batch: Batch, states: Tensor, request: RankRequest) -> Ranked:
        """Return the best labels by Eq. 2; head and tail probabilities are compared directly."""
        # In fp32: bf16 logits would tie.
        with torch.autocast(states.device.type, enabled=False):
            document, candidates = states.float(), request.candidates
            if candidates is None:
                found = aplc_topk(self.head, document, request.k, allowed=request.allowed)
            else:
                scores = self.head.probabilities(document, candidates.clamp(min=0))
                if self.labels_here.sharded:
                    candidates = torch.where(self.head.is_here(candidates), candidates, -1)
                found = topk_of(scores, candidates, request.k, request.allowed)
            found = TopK(*self.labels_here.merged(*found, request.k))
        experts = dict.fromkeys(request.experts, found)
        return Ranked(found, experts, found if request.mean else None)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters of the three parts of 4.1."""
        return {
            "encoder": list(self.encoder.parameters()),
            "pooler": list(self.hidden.parameters()),
            "classifier": list(self.head.parameters()),
        }
