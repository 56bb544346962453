"""The contract of everything that ranks labels in torch: a trained system, or several as one."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glocal.arrays import Ints
from glocal.data.batches import Batch, Collator
from glocal.data.chunks import Chunking
from glocal.errors import ConfigError
from glocal.label_slice import EVERY_LABEL, LabelSlice
from glocal.ranking.document_ranker import DocumentRanker, RankRequest
from glocal.ranking.predictions import Predictions
from glocal.ranking.topk import TopK


class Ranked(NamedTuple):
    """The best labels of a batch by the whole model, and by its parts where asked for."""

    combined: TopK
    experts: Mapping[str, TopK]  # by expert name
    mean: TopK | None  # by the mean of the experts' probabilities, whatever combines them


class Ranker(nn.Module, DocumentRanker):
    """Finds the best labels of documents in a fixed label space.

    Attributes:
        labels_here: The labels whose parameters are in this process.
    """

    labels_here: LabelSlice = EVERY_LABEL

    @property
    @abstractmethod
    def chunking(self) -> Chunking | None:
        """The way batches must cut long documents; None if only their start is read."""

    @abstractmethod
    def prepare(self, batch: Batch) -> Any:
        """Read the documents of a batch once: the states that `rank` works on."""

    @abstractmethod
    def expert_logits(self, states: Any, labels: slice | Tensor) -> dict[str, Tensor]:
        """Return each expert's logits of labels: a slice of all, or (B, C) of each document.

        Labels are counted from the first one that is in this process.
        """

    @abstractmethod
    def rank(self, batch: Batch, states: Any, request: RankRequest) -> Ranked:
        """Return the best labels by probability of documents that were prepared."""

    @torch.no_grad()
    def topk(self, batch: Batch, k: int, **options: Any) -> Ranked:
        """Prepare documents and return their best labels; the options are those of a request."""
        return self.rank(batch, self.prepare(batch), RankRequest(k, **options))

    # --- as a DocumentRanker ------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The device the weights are on."""
        return next(chain(self.parameters(), self.buffers())).device

    @property
    def device_name(self) -> str:
        """The device it computes on."""
        return str(self.device)

    def use_device(self, device: str) -> None:
        """Move to a device: `auto`, `cpu`, `cuda` or `cuda:N`, in evaluation mode."""
        self.to(choose_device(device)).eval()

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Predict in evaluation mode and without gradients."""
        was_training = self.training
        if was_training:  # threads that predict at the same time must not touch the system
            self.eval()
        with torch.inference_mode():
            yield
        if was_training:
            self.train()

    def autocast(self, precision: str) -> contextlib.AbstractContextManager[None]:
        """Return a context that computes in `fp32` or `bf16`."""
        if precision == "fp32":
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[None] = torch.autocast(
            self.device.type, dtype=torch.bfloat16
        )
        return context

    def rank_documents(
        self, documents: Collator, positions: Ints, request: RankRequest
    ) -> Predictions:
        """Return the best labels of a batch of documents."""
        batch = documents(positions).to(self.device)
        candidates, allowed = (
            None if array is None else torch.from_numpy(array).to(self.device)
            for array in (request.candidates, request.allowed)
        )
        moved = replace(request, candidates=candidates, allowed=allowed)
        ranked = self.rank(batch, self.prepare(batch), moved)
        return replace(
            _predictions(ranked.combined),
            experts={name: _predictions(found) for name, found in ranked.experts.items()},
            mean=None if ranked.mean is None else _predictions(ranked.mean),
        )


def choose_device(device: str) -> torch.device:
    """Return a device by its name: `auto`, `cpu`, `cuda` or `cuda:N`."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(
            f"the device must be auto, cpu, cuda or cuda:N, not '{device}'"
        ) from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("the device cuda was asked for, but PyTorch sees no GPU")
    return chosen


def _predictions(found: TopK) -> Predictions:
    """Return the best labels off the device."""
    return Predictions(found.indices.cpu().numpy(), found.scores.cpu().numpy())
