"""The rows of new labels in the experts of a trained system, made from the labels' texts.

A linear map from the texts of the old labels, as the encoder reads them, to their rows (ridge
regression) gives the row that a new label's own text would have. Where rows are tied to texts, the
map leads to the text's part of the row, which is common to all.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from glocal.encoders.label_vectors import mean_tokens
from glocal.encoders.tokenizer import TextTokenizer
from glocal.errors import ConfigError
from glocal.experts.expert import Expert
from glocal.systems.mixture import ExpertMixture
from glocal.update.row_fit import Rows
from glocal.vocabulary.label_change import LabelChange
from glocal.vocabulary.label_text import label_texts

_MOST_LABELS = 2000  # old labels whose texts the map from texts to rows is fitted on
_RIDGE = 0.3


class NewRows:
    """Makes the rows that new labels have by their texts alone.

    Args:
        mixture: The mixture before the change, on the device to compute on.
        tokenizer: The encoder's tokenizer.
        change: The new labels.
        rng: Random numbers.
    """

    def __init__(
        self,
        mixture: ExpertMixture,
        tokenizer: TextTokenizer,
        change: LabelChange,
        rng: np.random.Generator,
    ) -> None:
        self.change = change
        self.texts = _texts(change)
        n_old = len(change.after) - change.n_new
        named = np.array([bool(text) for text in self.texts[:n_old]])
        self.known = np.sort(rng.permutation(np.flatnonzero(named))[:_MOST_LABELS])
        self._by_layer: Mapping[int, np.ndarray] = {}
        if len(self.known) >= 2 and change.n_new:
            own = [self.texts[place] for place in self.known] + self.texts[n_old:]
            length = mixture.recipe.encoder.max_length
            self._by_layer = mean_tokens(mixture.encoder, tokenizer, own, max_length=length)

    @torch.no_grad()
    def of(self, expert: Expert) -> Rows:
        """Return the rows of an expert."""
        n_new, n_old = self.change.n_new, len(self.change.after) - self.change.n_new
        vectors, *bias = expert.label_tensors()
        biases = [_usual_bias(b, self.change, n_new) for b in bias]
        tie = getattr(expert, "tie", None)
        if not self._by_layer:
            nothing = None if tie is None else tie.rows.new_zeros(n_new, tie.rows.shape[1])
            return Rows([vectors.mean(0).expand(n_new, -1).clone(), *biases], nothing)
        joined = np.concatenate([self._by_layer[layer] for layer in expert.layers], axis=1)
        read = torch.from_numpy(joined).to(vectors.device)
        known, new = read[: len(self.known)], read[len(self.known) :]
        places = torch.from_numpy(self.known).to(vectors.device)
        nameless = torch.tensor([not text for text in self.texts[n_old:]], device=vectors.device)
        if tie is None:
            found = _mapped(known, vectors[places], new)
            return Rows([torch.where(nameless[:, None], vectors.mean(0), found), *biases])
        text = _mapped(known, tie.rows[places].float(), new)
        text = functional.normalize(text, dim=1) * ~nameless[:, None]
        found = text @ tie.project.float().T
        return Rows([torch.where(nameless[:, None], vectors.mean(0), found), *biases], text)


def _texts(change: LabelChange) -> list[str]:
    """Return the texts of all labels, empty for none."""
    try:
        return label_texts(change.after)
    except ConfigError:  # no label has one
        return [""] * len(change.after)


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
