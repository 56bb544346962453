"""The best labels of texts by sparse weights that stay on a GPU.

Scores are those of `LinearScorer`, dense for a part of the texts at a time; only the best labels
and their scores come back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glocal.companions.sparse.device_rows import DeviceRows
from glocal.companions.sparse.row_kernels import add_scores, has_kernels
from glocal.companions.sparse.sparse_scoring import LinearScorer

_CELLS = 1 << 26  # scores held at a time
_FEATURES = 1 << 14  # features of texts whose products are added together without kernels


class DeviceScorer:
    """The weights of a scorer on a device.

    Args:
        scorer: The weights.
        device: Name of the device.
    """

    def __init__(self, scorer: LinearScorer, device: torch.device | str) -> None:
        self._stream = None
        if torch.device(device).type == "cuda":  # beside the encoder, and not after it
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._weights = DeviceRows.of(scorer.weights, device)
        self._biases = torch.from_numpy(np.array(scorer.biases, np.float32)).to(device)
        self._votes = scorer.votes  # found on the processor
        self._names = scorer.names
        self._groups: DeviceRows | None = None
        if (groups := scorer.groups) is not None:
            self._groups = DeviceRows.of(groups.weights, device)
            of = np.where(groups.of < 0, groups.weights.shape[1], groups.of)
            self._group_of = torch.from_numpy(of.astype(np.int64)).to(device)
        if self._stream is not None:
            torch.cuda.synchronize(device)

    @torch.inference_mode()
    def top(
        self, features: Any, k: int, *, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the best labels of each text; arguments and result are those of `top_labels`."""
        with torch.cuda.stream(self._stream):  # nothing on the CPU
            return self._top(features, k, allowed)

    def _top(
        self, features: Any, k: int, allowed: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        n_texts, n_labels = features.shape[0], len(self._biases)
        width = min(k, n_labels)
        indices = np.full((n_texts, k), -1, dtype=np.int64)
        values = np.full((n_texts, k), -np.inf, dtype=np.float32)
        step = max(1, _CELLS // max(1, n_labels))
        for start in range(0, n_texts, step):
            rows = slice(start, start + step)
            scores = self.scores(features[rows])
            if allowed is not None:
                permitted = torch.from_numpy(allowed if allowed.ndim == 1 else allowed[rows])
                scores.masked_fill_(~permitted.to(scores.device), -torch.inf)
            best = _largest(scores, width)
            found = torch.gather(scores, 1, best)
            indices[rows, :width] = best.masked_fill(found.isneginf(), -1).cpu().numpy()
            values[rows, :width] = found.cpu().numpy()
        return indices, values

    def scores(self, features: Any) -> Tensor:
        """Return the scores (n, L) of the texts of a CSR matrix."""
        texts = DeviceRows.of(features, self._biases.device)
        scores = self._biases.repeat(len(texts), 1)
        _add(scores, texts, self._weights)
        if self._groups is not None:
            # One more column, of zeros, for labels without a group.
            by_group = scores.new_zeros(len(texts), self._groups.width)
            _add(by_group, texts, self._groups)
            by_group = torch.nn.functional.pad(by_group, (0, 1))
            for groups in self._group_of.T:
                scores += by_group[:, groups]
        if self._votes is not None:
            for row, (labels, gains) in enumerate(self._votes.gains(features)):
                scores[row, torch.from_numpy(labels.astype(np.int64))] += torch.from_numpy(
                    gains
                ).to(scores.device)
        if self._names is not None:  # found in an index of words, which is no work for a GPU
            found = (torch.from_numpy(p).to(scores.device) for p in self._names.gains(features))
            texts_of, labels_of, gains_of = found
            scores[texts_of, labels_of] += gains_of
        return scores


def _add(scores: Tensor, texts: DeviceRows, weights: DeviceRows) -> None:
    """Add the product of texts and weights to scores in place."""
    if has_kernels(scores.device):
        add_scores(scores, texts.arrays, weights.arrays)
        return
    features = texts.columns.long()
    starts, rows = weights.bounds[features], texts.row_numbers()
    lengths = weights.bounds[features + 1] - starts
    flat, n_labels = scores.view(-1), scores.shape[1]
    for some in torch.split(torch.arange(len(features), device=scores.device), _FEATURES):
        own = lengths[some]
        entry = torch.repeat_interleave(some, own)
        before = torch.repeat_interleave(own.cumsum(0) - own, own)
        place = starts[entry] + torch.arange(len(entry), device=scores.device) - before
        label = rows[entry] * n_labels + weights.columns[place]
        flat.index_add_(0, label, texts.values[entry] * weights.values[place])


def _largest(scores: Tensor, k: int) -> Tensor:
    """Return the columns (n, k) of the largest scores, ties by column, also at the k-th place."""
    bits = (scores + 0.0).view(torch.int32)  # without negative zeros
    # The bits of floats order like the floats, those of negative ones the other way round.
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).long()
    columns = torch.arange(scores.shape[1], device=scores.device)
    keys = (ordered << 32) | (0xFFFFFFFF - columns)
    return 0xFFFFFFFF - (keys.topk(k, dim=1).values & 0xFFFFFFFF)
