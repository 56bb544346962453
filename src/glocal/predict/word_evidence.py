"""How far each word of a text speaks for a label, by each expert, from one reading of the text.

- networks (`D`, `A`, `R`, label clusters): a text of few words is read again without each of them,
  in one batch, and a word's evidence is what the log-odds lose. For longer texts, and where they
  lose nothing without any word, gradient × input:
  the label's log-odds are followed back through the encoder to the embeddings of the tokens (layer
  0, or the tokens' own vectors where the encoder goes on from these); a word's evidence is the sum
  over its tokens of embedding times gradient, the first-order change of the log-odds if it were not
  there;
- words (`S`): the model is linear, so its weights are the evidence;
- teacher (`T`): votes of similar texts have no gradient; the text is compared again without each
  word, or part of a long text, and the evidence is what the log-odds lose.

Only tokens that the encoder read have evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from glocal.arrays import Floats32, Ints
from glocal.encoders.encoder import Embedded, Features, trace_embeddings
from glocal.experts.expert import Expert
from glocal.experts.sparse import SparseExpert
from glocal.experts.teacher import TeacherExpert
from glocal.predict.collate import collate
from glocal.predict.text_reading import Evidence, TextReading
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.ranker import Ranker
from glocal.systems.mixture_ensemble import mixtures_of

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

_FEW_WORDS = 32  # words up to which a text is read again without each of them


class TracedReading(TextReading):
    """One text, with the gradients of its labels' log-odds.

    Args:
        predictor: The model.
        text: The text.
        autocast: Returns the context of the computation.
    """

    def __init__(
        self,
        predictor: Predictor,
        text: str,
        *,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(predictor, text)
        assert isinstance(predictor.system, Ranker)
        self.system, self.autocast = predictor.system, autocast
        self.batch = self.documents(np.zeros(1, np.int64)).to(self._device)
        self.system.requires_grad_(True)  # a frozen encoder would build no graph
        with torch.enable_grad(), autocast(), trace_embeddings() as embeddings:
            self.states = self.system.prepare(self.batch)
        self.embeddings = [found for found in embeddings if found.layer.requires_grad]
        self._kinds = {expert.name: type(expert) for expert in _experts(self.system)}

    def _rank(self, k: int, labels: Sequence[int] | None = None) -> dict[int, float]:
        given = None if labels is None else torch.tensor([list(labels)], device=self._device)
        with torch.no_grad(), self.autocast():
            found = self.system.rank(self.batch, self.states, RankRequest(k, given)).combined
        pairs = zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True)
        return {label: score for label, score in pairs if label >= 0}

    def logits(self, labels: Sequence[int]) -> dict[str, Tensor]:
        """Return each expert's log-odds of labels (1, k), with a graph back to the embeddings."""
        given = torch.tensor([list(labels)], device=self._device)
        with torch.enable_grad(), self.autocast():
            return self.system.expert_logits(self.states, given)

    def value(self, logit: Tensor) -> float:
        """Return one of the log-odds as a plain number."""
        return float(logit.detach())

    def evidence(self, name: str, logit: Tensor, label: int) -> Evidence:
        """Return how far each word speaks for a label by one expert.

        Args:
            name: The expert.
            logit: Its log-odds of the label, from `logits`.
            label: Index of the label.
        """
        kind = self._kinds.get(name)
        if kind is SparseExpert:
            return self._word_weights(label)
        if kind is TeacherExpert:
            return self._left_out(name, float(logit.detach()), label)
        if 0 < len(self.places) <= _FEW_WORDS:
            lost = self._without_each_word(name, float(logit.detach()), label)
            if (lost > 0).any():
                return lost
        return self._gradients(logit)

    def _without_each_word(self, name: str, logit: float, label: int) -> Evidence:
        """Return what the log-odds lose without each word."""
        labels = torch.full((len(self.places), 1), label, device=self._device)
        with torch.no_grad(), self.autocast():
            without = self.system.expert_logits(self._shortened, labels)[name]
        return logit - without[:, 0].double().cpu().numpy()

    @cached_property
    def _shortened(self) -> Any:
        """The text without each of its words, read at once."""
        texts = [self.places.without([word]) for word in range(len(self.places))]
        batch = collate(self.predictor, texts)(np.arange(len(texts))).to(self._device)
        with torch.no_grad(), self.autocast():
            return self.system.prepare(batch)

    @property
    def _device(self) -> torch.device:
        return self.system.device

    def _gradients(self, logit: Tensor) -> Evidence:
        if not self.embeddings or not logit.requires_grad:
            return np.zeros(len(self.places))
        tokens = np.zeros(len(self.offsets))
        for found, places in zip(self.embeddings, self._token_places(), strict=True):
            product = _gradient_times_input(logit, found)
            if product is not None:
                np.add.at(tokens, places, product[: len(places)])
        return self.places.weigh(zip(self.offsets, tokens.tolist(), strict=True))

    def _token_places(self) -> list[Ints]:
        """Return which token of the text stands at each place of each traced tensor."""
        every, chunking = np.arange(len(self.offsets)), self.system.chunking
        if chunking is None:
            return [every[None]] * len(self.embeddings)
        further = [places for places, _ in chunking.beyond(every)]
        one = [chunking.first(every)[None], *([np.stack(further)] if further else [])]
        return one * (len(self.embeddings) // len(one))

    def _left_out(self, name: str, logit: float, label: int) -> Evidence:
        """Return what the log-odds lose without each part of the text."""
        texts = self._texts_without()
        found = self.predictor.companions.features_for_texts(texts)
        arrays = {key: torch.from_numpy(rows).to(self._device) for key, rows in found.items()}
        features = Features({}, None, companion_features=arrays)
        labels = torch.full((len(texts), 1), label, device=self._device)
        with torch.no_grad():
            without = _expert_logits(self.system, name, features, labels)
        return self._spread((logit - without).cpu().numpy())


def _gradient_times_input(logit: Tensor, found: Embedded) -> Floats32 | None:
    """Return the product for each token, (B, T); None where the logit does not depend on it."""
    for vectors in (found.layer, found.tokens):
        if vectors is not None:
            (slope,) = torch.autograd.grad(logit, vectors, retain_graph=True, allow_unused=True)
            if slope is not None:
                product: Floats32 = (vectors * slope).sum(-1).detach().float().cpu().numpy()
                return product
    return None


def _expert_logits(system: Ranker, name: str, features: Features, labels: Tensor) -> Tensor:
    """Return the log-odds (B,) of labels (B, 1) by an expert that reads no hidden state."""
    found = [
        expert.logits(expert.prepare(features), labels)[:, 0].float()
        for expert in _experts(system)
        if expert.name == name
    ]
    return torch.stack(found).mean(0)


def _experts(system: Ranker) -> Iterator[Expert]:
    """Yield the experts of a mixture, or of all members of an ensemble."""
    for mixture in mixtures_of(system):
        yield from (expert for expert in mixture.experts if isinstance(expert, Expert))
