"""Label vectors in half precision: the best labels of one text on a CPU in half the time.

One text is a product with every label vector: reading them takes the time, and half the bytes take
about half of it. The labels found are more than are needed, for the expert to score again exactly:
a rounded score may be a little too high or too low.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.experts.document import DocumentExpert
from glocal.experts.expert import State

LEAST_LABELS = 100_000  # below, reading them takes little of a text's time
_FOUND_FOR_EACH = 2


class HalfLabels:
    """A copy of a document expert's label vectors, made when it is first needed."""

    def __init__(self) -> None:
        self._kept: tuple[Tensor, int, Tensor] | None = None  # the vectors, their state, the copy

    def best(
        self, expert: DocumentExpert, state: State, k: int, allowed: Tensor | None
    ) -> Tensor | None:
        """Return twice as many labels (1, 2k) as are needed; None where this saves no time.

        Args:
            expert: The expert, whose state has no gradient.
            state: Its state for the texts.
            k: Labels needed.
            allowed: (L,) labels that may be found; all by default.
        """
        (document,) = state
        if not self._helps(expert, document):
            return None
        vectors, *bias = expert.label_tensors()
        half = self._copy(vectors)
        scores = (document.to(half.dtype) @ half.T).float()
        for one in bias:
            scores += one
        if allowed is not None:
            scores.masked_fill_(~allowed, -torch.inf)
        best: Tensor = scores.topk(min(_FOUND_FOR_EACH * k, scores.shape[1])).indices
        return best

    @staticmethod
    def _helps(expert: DocumentExpert, document: Tensor) -> bool:
        return (
            document.device.type == "cpu"
            and len(document) == 1
            and not torch.is_grad_enabled()
            and expert.weight is not None
            and expert.weight.dtype == torch.float32
            and len(expert.weight) >= LEAST_LABELS
        )

    def _copy(self, vectors: Tensor) -> Tensor:
        """Return the vectors in half precision; they are rounded again after a change."""
        version = 0 if vectors.is_inference() else vectors._version
        kept = self._kept  # read once: other threads may replace it
        if kept is None or kept[0] is not vectors or kept[1] != version:
            largest = torch.finfo(torch.float16).max
            half = vectors.detach().clamp(-largest, largest).half()
            kept = self._kept = vectors, version, half
        return kept[2]
