"""Label rows that learn from examples, in the experts of a trained system.

- New labels start from their texts (`new_rows.py`). In a further training old labels learn too,
  from the rows they have: those of the texts, and those that an expert ranks first where they do
  not belong, if training texts with them are given. All other rows, the encoder and what labels
  share stay as they are, so that nothing else is forgotten.
- Rows learn (`row_fit.py`) from the examples and, so that they keep their place among others, from
  background texts: given training texts, two of each label that learns among them, or for new
  labels the old labels' texts.
- The encoder reads every text once; each step then goes over what the experts made of it. On a GPU
  batches are large: the time of a step is that of its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.companions.sparse.new_labels import few_examples
from glocal.data.batches import Collator, prediction_batches
from glocal.data.corpus import Corpus
from glocal.data.tokens import TokenStore
from glocal.encoders.tokenizer import TextTokenizer
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import Expert, State
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.losses.chunked import label_chunks
from glocal.losses.memory import ChunkUse
from glocal.progress import Progress, report
from glocal.ranking.ranker import choose_device
from glocal.ranking.topk import RunningTopK
from glocal.systems.mixture import ExpertMixture
from glocal.update.new_rows import NewRows
from glocal.update.row_fit import Pace, ReadTexts, Rows, fit_rows, write_rows
from glocal.vocabulary.label_change import LabelChange

_BATCH = 64  # texts, on a CPU
_BATCH_TOKENS = 1 << 17  # on a GPU
_MOST_EXAMPLES = 16  # of a new label that the encoder reads
_BACKGROUND = 500  # texts that new labels are trained against
_REPLAYED, _REPLAYED_FOR_EACH = 1000, 2  # of a further training: at least, and for each new text
_OWN_REPLAYED = 2  # training texts of each old label that learns
_RIVALS = 5  # best labels of a text that learn where they do not belong
_NEW_LABELS = Pace(rate=0.15, hold=1.0)
# In a further training rows are good already, and a few texts easily spoil them: queries of label
# attention more than vectors.
_FURTHER = Pace(rate=0.05, hold=3.0)
_FURTHER_ATTENTION = Pace(rate=0.02, hold=30.0)
_HOLD = 0.02  # pull of a row towards its start, in units of the loss of one text
_HOLD_KNOWN = 0.02  # the same of an old label, for each of its training texts
_THINNED = 10.0  # background texts count for fewer than they stand for, so that examples count too


class LearntRows:
    """Makes the label rows of one mixture that a change teaches.

    Args:
        mixture: The mixture before the change.
        tokenizer: The encoder's tokenizer.
        change: The new labels, their examples and the texts to train against.
        device: Where the encoder reads texts.
        progress: Receives how many texts it has read.
    """

    def __init__(
        self,
        mixture: ExpertMixture,
        tokenizer: TextTokenizer,
        change: LabelChange,
        device: str,
        progress: Progress | None,
    ) -> None:
        self.mixture, self.tokenizer, self.change = mixture, tokenizer, change
        self.device, self.progress = choose_device(device), progress
        self.rng = np.random.default_rng(mixture.recipe.train.seed)
        self.n_old = len(change.after) - change.n_new

    def fill(self, system: ExpertMixture) -> None:
        """Write the rows into the changed system."""
        pairs = [
            (old, new)
            for old, new in zip(self.mixture.experts, system.experts, strict=True)
            if isinstance(old, DocumentExpert | LabelAttentionExpert)
        ]
        if not pairs:
            return
        home = next(self.mixture.parameters()).device
        self.mixture.to(self.device).eval()
        try:
            labels, found = self._rows([old for old, _ in pairs])
        finally:
            self.mixture.to(home)
        for (_, new), rows in zip(pairs, found, strict=True):
            write_rows(new, labels, rows)

    def _rows(self, experts: Sequence[Expert]) -> tuple[np.ndarray, list[Rows]]:
        """Return the labels whose rows change, and the rows of each expert."""
        started = NewRows(self.mixture, self.tokenizer, self.change, self.rng)
        new = np.arange(self.n_old, len(self.change.after))
        rows = [started.of(expert) for expert in experts]
        examples = self._examples()
        if examples is None:
            return new, rows
        gold, learning = self.change.known_labels(examples), new
        batches = self._read(experts, list(examples.texts()))
        if self.change.continues:
            old = self._old_labels(experts, batches, gold)
            rows = [
                _rows_of(expert, old).joined(own) for expert, own in zip(experts, rows, strict=True)
            ]
            learning = np.concatenate([old, new])
        replay = self._replay(len(examples), learning)
        others = [started.texts[place] for place in started.known[:_BACKGROUND]]
        background = others if replay is None else list(replay.texts())
        batches += self._read(experts, background, after=len(examples))
        texts = self._texts(batches, learning, gold, replay, len(background))
        return learning, [
            fit_rows(expert, place, own, texts, self._pace(expert))
            for place, (expert, own) in enumerate(zip(experts, rows, strict=True))
        ]

    def _pace(self, expert: Expert) -> Pace:
        if not self.change.continues:
            return _NEW_LABELS
        return _FURTHER if expert.label_width == 1 else _FURTHER_ATTENTION

    def _examples(self) -> Corpus | None:
        """Return the examples that rows learn from; of many of a new label, some are enough."""
        if self.change.examples is None or self.change.continues:
            return self.change.examples
        chosen = few_examples(self.change.example_labels, _MOST_EXAMPLES, rng=self.rng)
        return self.change.examples.take(chosen) if len(chosen) else None

    def _replay(self, n_examples: int, labels: np.ndarray) -> Corpus | None:
        """Return training texts that take part; None where none are given.

        In a further training, each label that learns has some of its own among them.
        """
        train, most, own = self.change.train, _BACKGROUND, np.empty(0, np.int64)
        if train is None:
            return None
        if self.change.continues:
            most = max(_REPLAYED, _REPLAYED_FOR_EACH * n_examples)
            own = few_examples(self._train_labels[:, labels], _OWN_REPLAYED, rng=self.rng)
        others = np.setdiff1d(np.arange(len(train)), own)
        drawn = self.rng.permutation(others)[: max(0, most - len(own))]
        return train.take(np.sort(np.concatenate([own, drawn])))

    @cached_property
    def _train_labels(self) -> Any:
        """(texts, after) CSR matrix of the labels of the training texts."""
        return self.change.known_labels(self.change.train)

    @torch.no_grad()
    def _old_labels(
        self,
        experts: Sequence[Expert],
        batches: Sequence[tuple[Sequence[State], Tensor]],
        gold: Any,
    ) -> np.ndarray:
        """Return the old labels that learn: of the examples, and those ranked first wrongly.

        The latter need a text of their own among those given: from texts without them alone they
        would learn that they are rare.
        """
        rivals = [np.empty(0, np.int64)]
        for place, expert in enumerate(experts):
            width = expert.label_width
            for states, rows in batches:
                best = RunningTopK(_RIVALS)
                limit = ChunkUse.EXPERT_LOGITS.limit(self.device.type)
                chunks = label_chunks(self.n_old, documents=len(rows), width=width, limit=limit)
                for chunk in chunks:
                    logits = expert.logits(states[place], chunk).float()
                    ids = torch.arange(chunk.start, chunk.stop, device=logits.device)
                    best.update(torch.sigmoid(logits), ids)
                rivals.append(best.result().indices.cpu().numpy().ravel())
        found = np.unique(np.concatenate(rivals))
        found = found[(found >= 0) & (found < self.n_old)]
        shown = self._train_labels.getnnz(axis=0) > 0
        own = np.unique(gold.indices)
        learning: np.ndarray = np.union1d(own[own < self.n_old], found[shown[found]])
        return learning

    def _texts(
        self,
        batches: Sequence[tuple[Sequence[State], Tensor]],
        labels: np.ndarray,
        gold: Any,
        replay: Corpus | None,
        n_background: int,
    ) -> ReadTexts:
        """Return the texts that have been read, with their labels and weights."""
        n_examples, n_documents = gold.shape[0], self.change.before.n_documents
        target = np.zeros((n_examples + n_background, len(labels)), np.float32)
        target[:n_examples] = gold[:, labels].toarray()
        if self.change.continues:
            target[n_examples:] = self.change.known_labels(replay)[:, labels].toarray()
        weight = np.ones(len(target), np.float32)
        weight[n_examples:] = max(1.0, n_documents / max(1, n_background) / _THINNED)
        before = np.concatenate([self.change.before.counts, np.zeros(self.change.n_new)])
        hold = (_HOLD + _HOLD_KNOWN * before[labels]).astype(np.float32)
        hold[(labels >= self.n_old) & ~target[:n_examples].any(axis=0)] = np.inf
        parts = (torch.from_numpy(part).to(self.device) for part in (target, weight, hold))
        return ReadTexts(batches, *parts)

    @torch.no_grad()
    def _read(
        self, experts: Sequence[Expert], texts: Sequence[str], *, after: int = 0
    ) -> list[tuple[list[State], Tensor]]:
        """Return the experts' states of batches of texts, and the places of the texts.

        Places count from `after`, the number of texts read before.
        """
        length = self.mixture.recipe.encoder.tokens_read
        tokens = TokenStore.in_memory(self.tokenizer.encode_batch(list(texts), length))
        collate = Collator(tokens, self.tokenizer.facts, n_labels=1, chunking=self.mixture.chunking)
        found, done, size = [], 0, _BATCH
        if self.device.type != "cpu":
            size = max(1, _BATCH_TOKENS // max(1, int(tokens.lengths.max(initial=1))))
        for places in prediction_batches(tokens.lengths, size):
            features = self.mixture.features(collate(places).to(self.device))
            states = [_detached(expert.prepare(features)) for expert in experts]
            found.append((states, torch.from_numpy(places + after).to(self.device)))
            done += len(places)
            report(self.progress, done, len(texts))
        return found


def _rows_of(expert: Expert, labels: np.ndarray) -> Rows:
    """Return the rows that labels have."""
    places = torch.from_numpy(labels)
    parts = [tensor.detach()[places].float() for tensor in expert.label_tensors()]
    tie = getattr(expert, "tie", None)
    return Rows(parts, None if tie is None else tie.rows[places])


def _detached(state: State) -> State:
    """Return a state without its parameters' gradients: only rows are trained."""
    return tuple(part.detach() if isinstance(part, Tensor) else part for part in state)
