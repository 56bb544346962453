"""The rows of new labels in the experts of a trained system.

- A row starts from the label's text: a linear map from the texts of the old labels, as the encoder
  reads them, to their rows (ridge regression) gives the row that its own text would have. Where
  rows are tied to texts, the map leads to the text's part of the row, which is common to all.
- Where the label has examples, the row is trained on them, with everything else fixed, against
  background texts: given training texts, or the old labels' texts. It is held near its start, so
  that few examples move it little.
- The encoder reads every text once; each step then goes over what the experts made of it. On a GPU
  batches are large: the time of a step is that of its calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import backward
from torch.nn import functional

from glocal.companions.sparse.new_labels import few_examples
from glocal.data.batches import Collator, prediction_batches
from glocal.data.tokens import TokenStore
from glocal.encoders.label_vectors import mean_tokens
from glocal.encoders.tokenizer import TextTokenizer
from glocal.errors import ConfigError
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import Expert, State
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.progress import Progress
from glocal.ranking.ranker import choose_device
from glocal.systems.mixture import ExpertMixture
from glocal.vocabulary.label_change import LabelChange
from glocal.vocabulary.label_text import label_texts

_BATCH = 64  # texts, on a CPU
_BATCH_TOKENS = 1 << 17  # on a GPU
_MOST_EXAMPLES = 16  # of a label that the encoder reads
_BACKGROUND = 500  # texts that new labels are trained against
_MOST_LABELS = 2000  # old labels whose texts the map from texts to rows is fitted on
_STEPS = 40
_HOLD = 0.02  # pull of a row towards its start, in units of the loss of one example
_RIDGE = 0.3
_THINNED = 10.0  # background texts count for fewer than they stand for, so that examples count too


@dataclass
class _Rows:
    """The rows of new labels in one expert.

    Attributes:
        parts: Vectors (k, W) and, where there are any, biases (k,).
        text: (k, N) the text's part of the vectors, where they are tied to it.
    """

    parts: list[Tensor]
    text: Tensor | None = None


class NewRows:
    """Makes the rows of new labels for the experts of one mixture.

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
        self.max_length = mixture.recipe.encoder.max_length
        self.rng = np.random.default_rng(mixture.recipe.train.seed)

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
            texts = self._texts()
            known = self._known_labels(texts)
            read = self._read_labels(texts, known)
            started = [self._start(old, texts, known, read) for old, _ in pairs]
            found = self._train([old for old, _ in pairs], started, texts, known)
        finally:
            self.mixture.to(home)
        for (_, new), rows in zip(pairs, found, strict=True):
            _write_rows(new, rows, self.change.n_new)

    def _texts(self) -> list[str]:
        """Return the texts of all labels, empty for none."""
        try:
            return label_texts(self.change.after)
        except ConfigError:  # no label has one
            return [""] * len(self.change.after)

    def _known_labels(self, texts: Sequence[str]) -> np.ndarray:
        """Return some of the old labels with a text."""
        n_old = len(self.change.after) - self.change.n_new
        named = np.array([bool(text) for text in texts[:n_old]])
        return np.sort(self.rng.permutation(np.flatnonzero(named))[:_MOST_LABELS])

    @torch.no_grad()
    def _start(
        self,
        expert: Expert,
        texts: Sequence[str],
        known: np.ndarray,
        by_layer: Mapping[int, np.ndarray],
    ) -> _Rows:
        """Return rows made from the labels' texts."""
        n_new, n_old = self.change.n_new, len(self.change.after) - self.change.n_new
        vectors, *bias = expert.label_tensors()
        biases = [_usual_bias(b, self.change, n_new) for b in bias]
        tie = getattr(expert, "tie", None)
        if len(known) < 2:
            nothing = None if tie is None else tie.rows.new_zeros(n_new, tie.rows.shape[1])
            return _Rows([vectors.mean(0).expand(n_new, -1).clone(), *biases], nothing)
        joined = np.concatenate([by_layer[layer] for layer in expert.layers], axis=1)
        read = torch.from_numpy(joined).to(self.device)
        places = torch.from_numpy(known).to(vectors.device)
        nameless = torch.tensor([not text for text in texts[n_old:]], device=vectors.device)
        if tie is None:
            new = _mapped(read[: len(known)], vectors[places], read[len(known) :])
            return _Rows([torch.where(nameless[:, None], vectors.mean(0), new), *biases])
        own = _mapped(read[: len(known)], tie.rows[places].float(), read[len(known) :])
        own = functional.normalize(own, dim=1) * ~nameless[:, None]
        new = own @ tie.project.float().T
        return _Rows([torch.where(nameless[:, None], vectors.mean(0), new), *biases], own)

    def _read_labels(self, texts: Sequence[str], known: np.ndarray) -> Mapping[int, np.ndarray]:
        """Return what the encoder makes of the texts of known and new labels, by layer."""
        if len(known) < 2:
            return {}
        n_old = len(self.change.after) - self.change.n_new
        own = [texts[place] for place in known] + list(texts[n_old:])
        return mean_tokens(self.mixture.encoder, self.tokenizer, own, max_length=self.max_length)

    def _train(
        self,
        experts: Sequence[Expert],
        started: list[_Rows],
        texts: Sequence[str],
        known: np.ndarray,
    ) -> list[_Rows]:
        """Train the rows of labels with examples; the others stay as they start."""
        gold = self.change.example_labels
        chosen = few_examples(gold, _MOST_EXAMPLES, rng=self.rng)
        if not len(chosen):
            return started
        assert self.change.examples is not None
        documents = self.change.examples.take(chosen).texts()
        background = self._background(texts, known)
        target = np.zeros((len(documents) + len(background), self.change.n_new), np.float32)
        target[: len(documents)] = gold[chosen].toarray()
        weight = np.ones(len(target), np.float32)
        weight[len(documents) :] = max(
            1.0, self.change.before.n_documents / max(1, len(background)) / _THINNED
        )
        states = self._states(experts, [*documents, *background])
        has_examples = torch.from_numpy(np.asarray(gold.sum(axis=0)).ravel() > 0).to(self.device)
        for place, (expert, rows) in enumerate(zip(experts, started, strict=True)):
            rows.parts = _fit_rows(
                expert,
                [(state[place], places) for state, places in states],
                rows.parts,
                target=torch.from_numpy(target).to(self.device),
                weight=torch.from_numpy(weight).to(self.device),
                has_examples=has_examples,
            )
        return started

    def _background(self, texts: Sequence[str], known: np.ndarray) -> list[str]:
        if self.change.train is None:
            return [texts[place] for place in known[:_BACKGROUND]]
        rows = self.rng.permutation(len(self.change.train))[:_BACKGROUND]
        return self.change.train.take(np.sort(rows)).texts()

    @torch.no_grad()
    def _states(
        self, experts: Sequence[Expert], texts: Sequence[str]
    ) -> list[tuple[list[State], Tensor]]:
        """Return the experts' states of batches of texts, and the places of the texts."""
        length = self.mixture.recipe.encoder.tokens_read
        tokens = TokenStore.in_memory(self.tokenizer.encode_batch(list(texts), length))
        collate = Collator(tokens, self.tokenizer.facts, n_labels=1, chunking=self.mixture.chunking)
        found, done, size = [], 0, _BATCH
        if self.device.type != "cpu":
            size = max(1, _BATCH_TOKENS // max(1, int(tokens.lengths.max(initial=1))))
        for places in prediction_batches(tokens.lengths, size):
            features = self.mixture.features(collate(places).to(self.device))
            states = [_detached(expert.prepare(features)) for expert in experts]
            found.append((states, torch.from_numpy(places).to(self.device)))
            done += len(places)
            if self.progress is not None:
                self.progress(done, len(texts))
        return found


def _detached(state: State) -> State:
    """Return a state without its parameters' gradients: only rows are trained."""
    return tuple(part.detach() if isinstance(part, Tensor) else part for part in state)


def _mapped(inputs: Tensor, wanted: Tensor, others: Tensor) -> Tensor:
    """Return what a linear map from inputs to the values wanted gives for other inputs."""
    centre, mean = inputs.mean(0), wanted.mean(0)
    centred = inputs - centre
    gram = centred.T @ centred
    gram += _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
    # On the CPU: a GPU's solver takes longer to start than a system of this size takes to solve.
    mapped: Tensor = torch.linalg.solve(gram.cpu(), (centred.T @ (wanted - mean)).cpu())
    return mean + (others - centre) @ mapped.to(others.device)


def _usual_bias(bias: Tensor, change: LabelChange, n_new: int) -> Tensor:
    """Return the mean bias of the old labels with about as many texts as each new one."""
    counts = np.log1p(change.after.counts.astype(np.float64))
    old, new = counts[: len(counts) - n_new], counts[len(counts) - n_new :]
    order = np.argsort(old, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(bias.float().cpu().numpy()[order])])
    width = min(100, len(old))
    starts = np.clip(np.searchsorted(old[order], new) - width // 2, 0, len(old) - width)
    return torch.from_numpy((sums[starts + width] - sums[starts]) / width).to(bias)


def _fit_rows(
    expert: Expert,
    batches: Sequence[tuple[State, Tensor]],
    start: Sequence[Tensor],
    *,
    target: Tensor,
    weight: Tensor,
    has_examples: Tensor,
) -> list[Tensor]:
    """Train rows by the log loss, with everything else fixed."""
    rows = [part.detach().clone().float().requires_grad_() for part in start]
    scale = float(start[0].std().clamp(min=1e-3))
    rates = [{"params": [rows[0]], "lr": 0.1 * scale}]
    if len(rows) > 1:
        rates.append({"params": [rows[1]], "lr": 0.1})
    optimizer = torch.optim.Adam(rates)
    with torch.enable_grad():
        for _ in range(_STEPS):
            optimizer.zero_grad()
            away = (rows[0] - start[0]) / scale
            backward(0.5 * _HOLD * away.square().sum())
            for state, places in batches:
                logits = expert.score(state, tuple(rows)).float()
                losses = functional.binary_cross_entropy_with_logits(
                    logits, target[places], reduction="none"
                )
                backward((losses * weight[places, None]).sum())
            optimizer.step()
    kept = [torch.where(has_examples[(...,) + (None,) * (r.dim() - 1)], r, s)
            for r, s in zip(rows, start, strict=True)]  # fmt: skip
    return [part.detach() for part in kept]


@torch.no_grad()
def _write_rows(expert: Any, rows: _Rows, n_new: int) -> None:
    """Write label rows into the last places of an expert's parameters."""
    vectors, *bias = (part.cpu() for part in rows.parts)
    matrix: Tensor = expert.weight if hasattr(expert, "head") else expert.query
    if expert.tie is None or rows.text is None:
        matrix[-n_new:] = vectors.to(matrix)
    else:  # the row is the part of the text and, as far as there are examples, the label's own
        text, share = rows.text.cpu(), expert.tie.share[-n_new:, None]
        share = torch.where(text.any(1, keepdim=True), share, (share > 0).to(share))
        own = vectors - text @ expert.tie.project.float().T
        expert.tie.rows[-n_new:] = text.to(expert.tie.rows)
        matrix[-n_new:] = torch.where(share > 0, own / share.clamp(min=1e-6), 0.0).to(matrix)
    if bias:
        expert.bias[-n_new:] = bias[0].to(expert.bias)
