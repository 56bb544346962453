"""The best labels of one text among very many: every label scored, a shortlist, or clusters.

Labels are synthetic. A text's gold labels are given vectors that both experts recognise, the
global one more surely than the local one; all others are random. The share of full scoring's P@5
that a shortlist keeps says how the two ways agree under such scores, nothing about real texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from glocal.data.batches import Batch
from glocal.experts.document import DocumentExpert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.lab.speed_measures import FULL, Comparison
from glocal.lab.synthetic_steps import Shape, synthetic_batch, synthetic_system, vocabulary_of
from glocal.systems.mixture import ExpertMixture

_DOCUMENTS, _GOLD = 16, 5
_STRENGTH, _SPREAD = 5.5, 1.0  # logits of gold labels, in deviations of the others'
_TRIES = 256  # random queries of which a gold label has the best


@dataclass(frozen=True)
class ShortlistSpeed:
    """The time that a shortlist saves and the quality it keeps.

    Attributes:
        times: Seconds of one text's ten best labels, by way.
        precisions: P@5 by way.
    """

    times: dict[str, float]
    precisions: dict[str, float]

    def comparisons(self, n_labels: int) -> list[Comparison]:
        """Return each way's time beside that of full scoring."""
        what = f"ten best of {n_labels:,} labels, {{}}"
        full = 1e3 * self.times["full"]
        return [
            Comparison(what.format(way), "every label scored", "ms", 1e3 * seconds, full)
            for way, seconds in self.times.items()
            if way != "full"
        ]


def shortlist_speed(shape: Shape) -> ShortlistSpeed:
    """Measure one text's ten best labels, and the P@5 of texts with planted gold labels."""
    times: dict[str, float] = {}
    precisions: dict[str, float] = {}
    for way in ("full", "shortlist", "clusters"):
        settings = [FULL.replace("full", way), "labels.text=off"]
        system, _ = synthetic_system(shape, settings)
        assert isinstance(system, ExpertMixture)
        system.eval()
        with torch.inference_mode():
            act = partial(system.topk, _texts(1, shape, system), 10)
            times[way] = shape.seconds(act)
            if way != "clusters":  # these are trained with the labels
                precisions[way] = _planted_precision(system, shape)
        del system, act
    return ShortlistSpeed(times, precisions)


def _texts(count: int, shape: Shape, system: ExpertMixture) -> Batch:
    torch.manual_seed(1)
    sizes, vocabulary = replace(shape, batch=count), vocabulary_of(system)
    return synthetic_batch(sizes, padded=False, vocabulary=vocabulary)


def _planted_precision(system: ExpertMixture, shape: Shape) -> float:
    """Plant gold labels for each text, and return the P@5 of the system."""
    batch = _texts(_DOCUMENTS, shape, system)
    generator = torch.Generator().manual_seed(2)
    gold = torch.arange(_DOCUMENTS * _GOLD, device=shape.device).view(_DOCUMENTS, _GOLD)
    states = system.prepare(batch)
    for expert in system.experts:
        state = states[str(expert.name)]
        if isinstance(expert, DocumentExpert):
            _plant_vectors(expert, state[0], gold, generator)
        elif isinstance(expert, LabelAttentionExpert):
            _plant_queries(expert, state, gold, generator)
    found = system.topk(batch, _GOLD).combined.indices
    hits = (found.unsqueeze(2) == gold.unsqueeze(1)).any(2)
    return float(hits.float().mean())


def _plant_vectors(
    expert: DocumentExpert, documents: Tensor, gold: Tensor, generator: torch.Generator
) -> None:
    assert expert.weight is not None
    length = documents.norm(dim=1)  # the deviation of a random label's logit is 0.02 of this
    noise = torch.randn(gold.shape, generator=generator).to(documents)
    wanted = 0.02 * (_STRENGTH + _SPREAD * noise)
    unit = documents / length[:, None]
    expert.weight[gold] = wanted.unsqueeze(-1) * unit.unsqueeze(1)


def _plant_queries(
    expert: LabelAttentionExpert,
    state: tuple[Tensor, ...],
    gold: Tensor,
    generator: torch.Generator,
) -> None:
    tries = 0.02 * torch.randn(_TRIES, expert.query.shape[1], generator=generator).to(expert.query)
    bias = () if expert.bias is None else (expert.bias.new_zeros(_TRIES),)
    scores = expert.score(state, (tries, *bias))  # (B, tries)
    best = scores.topk(gold.shape[1], dim=1).indices
    expert.query[gold] = tries[best]
