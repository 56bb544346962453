"""Divergence of the two experts of a model on documents, label chunk by label chunk.

- `jsd`: Jensen-Shannon divergence of the experts' label distributions (GlocalXML Figure 3): their
  sigmoids normalised to sum to 1 over the labels of a document; natural log; mean over documents;
- `bernoulli_jsd`: the same for each label's own Bernoulli distributions; mean over labels and
  documents;
- `gold_kl`: Σ over a document's gold labels of KL(p_j ‖ p_k), the mean of both orders (ME-XML Eq. 6
  with λ = 1 on gold labels, Figure 2b); mean over the documents that have gold labels.

The normalisation needs the sum over all labels, so the chunks are scored twice: no (documents,
labels) matrix is ever held. Everything is computed in float64 and in logs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from glocal.data.batches import prediction_batches
from glocal.errors import ConfigError
from glocal.experts.expert import Expert
from glocal.losses.diversity import bernoulli_kl
from glocal.predict.collate import collate
from glocal.predict.predictor import Predictor
from glocal.progress import Progress, report
from glocal.systems.mixture import ExpertMixture

if TYPE_CHECKING:
    from glocal.data.batches import Batch
    from glocal.data.corpus import Corpus

_LN2 = math.log(2.0)


@dataclass(frozen=True)
class Divergence:
    """Divergences of two experts, means over documents."""

    jsd: float
    bernoulli_jsd: float
    gold_kl: float
    documents: int
    documents_with_gold: int


def log_jsd(first: Tensor, second: Tensor) -> Tensor:
    """Return the terms of the Jensen-Shannon divergence of two distributions, from their logs."""
    middle = torch.logaddexp(first, second) - _LN2
    return 0.5 * (first.exp() * (first - middle) + second.exp() * (second - middle))


def bernoulli_jsd(first: Tensor, second: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of Bernoulli distributions, from logits."""
    yes = log_jsd(functional.logsigmoid(first), functional.logsigmoid(second))
    return yes + log_jsd(functional.logsigmoid(-first), functional.logsigmoid(-second))


def expert_divergence(
    predictor: Predictor, corpus: Corpus, *, progress: Progress | None = None
) -> Divergence:
    """Measure how much the two experts of a model differ on a corpus.

    Args:
        predictor: A model with exactly two experts.
        corpus: Documents; their gold labels inside the label space are used for `gold_kl`.
        progress: Called with (done, total).

    Raises:
        ConfigError: If the model does not have two experts.
    """
    system = predictor.system
    if not isinstance(system, ExpertMixture) or len(system.expert_names) != 2:
        raise ConfigError(
            "the divergence of two experts needs a model of one member with exactly two, not of "
            f"{predictor.recipe.train.members} with {', '.join(system.expert_names)}"
        )
    gold = predictor.labels.encode(corpus)
    documents = replace(collate(predictor, corpus), gold=gold)
    totals, done, with_gold = torch.zeros(3, dtype=torch.float64), 0, 0
    for places in prediction_batches(documents.tokens.lengths, predictor.batch_size):
        batch = documents(places).to(system.device)
        totals += batch_divergence(system, batch).cpu()
        with_gold += int((batch.gold >= 0).any(1).sum())
        done += len(places)
        report(progress, done, len(documents))
    jsd, bernoulli, kl = totals.tolist()
    return Divergence(jsd / done, bernoulli / done, kl / max(1, with_gold), done, with_gold)


@torch.inference_mode()
def batch_divergence(system: ExpertMixture, batch: Batch) -> Tensor:
    """Return sums over the documents of a batch: JSD, mean Bernoulli JSD, KL on gold labels."""
    states = system.prepare(batch)
    experts = [(e, states[e.name]) for e in system.experts if isinstance(e, Expert)]

    def logits(labels: slice | Tensor) -> list[Tensor]:
        return [expert.logits(state, labels).double() for expert, state in experts]

    device = batch.input_ids.device
    chunks = system.chunks(len(batch), device)
    sums = torch.zeros(2, len(batch), dtype=torch.float64, device=device)
    for chunk in chunks:
        sums += torch.stack([torch.sigmoid(z).sum(1) for z in logits(chunk)])
    totals = torch.zeros(2, dtype=torch.float64, device=device)
    for chunk in chunks:
        first, second = logits(chunk)
        distributions = [
            functional.logsigmoid(z) - total.log()[:, None]
            for z, total in zip((first, second), sums, strict=True)
        ]
        totals[0] += log_jsd(*distributions).sum()
        totals[1] += bernoulli_jsd(first, second).sum() / system.n_labels
    first, second = logits(batch.gold.clamp(min=0))
    both = 0.5 * (bernoulli_kl(first, second) + bernoulli_kl(second, first))
    return torch.cat([totals, (both * (batch.gold >= 0)).sum()[None]])
