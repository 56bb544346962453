"""The contract of everything that ranks labels of documents, whatever it computes with.

A torch system (`ranker.py`), the model of words alone (`words_ranker.py`) and an exported graph
take documents and return numpy arrays, so that prediction is the same for all of them.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glocal.arrays import Ints
from glocal.errors import ConfigError
from glocal.ranking.combination import Combination

if TYPE_CHECKING:
    from glocal.data.batches import Collator
    from glocal.data.chunks import Chunking
    from glocal.ranking.predictions import Predictions


@dataclass(frozen=True)
class RankRequest:
    """A request for the best labels of a batch; its arrays are numpy's, or torch's inside torch.

    Attributes:
        k: Labels per document.
        candidates: (B, M) label ids to score, −1 for none; by default every label.
        allowed: (L,) bool, labels that may be predicted.
        experts: Names of experts whose own best labels are also returned.
        mean: Whether the best labels by the mean of the experts' probabilities are too.
    """

    k: int
    candidates: Any = None
    allowed: Any = None
    experts: Sequence[str] = ()
    mean: bool = False


class DocumentRanker(ABC):
    """Ranks the labels of documents in a fixed label space.

    Attributes:
        n_labels: Number of labels.
        expert_names: The experts, each of which can also be asked for its own best labels.
        combination: How the experts' scores are combined.
        learns_weights: Whether the weights of a combination can be learnt on dev.
    """

    n_labels: int
    expert_names: list[str]
    combination: Combination = Combination()
    learns_weights: bool = False

    @property
    def chunking(self) -> Chunking | None:
        """The way batches must cut long documents; None if only their start is read."""
        return None

    @property
    def device_name(self) -> str:
        """The device it computes on, and companions with it: `cpu`, `cuda` or `cuda:N`."""
        return "cpu"

    def use_device(self, device: str) -> None:
        """Move to a device: `auto`, `cpu`, `cuda` or `cuda:N`; without torch, stay on the CPU."""
        check_device(device)

    def computing(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of predictions."""
        return contextlib.nullcontext()

    def autocast(self, precision: str) -> contextlib.AbstractContextManager[None]:
        """Return a context that computes in `fp32`, or in `bf16` where that is possible."""
        return contextlib.nullcontext()

    def only_trained(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which experts that training does not read are left out."""
        return contextlib.nullcontext()

    @abstractmethod
    def rank_documents(
        self, documents: Collator, positions: Ints, request: RankRequest
    ) -> Predictions:
        """Return the best labels of a batch of documents by probability.

        Args:
            documents: All documents.
            positions: (B,) those of the batch.
            request: Says which labels are asked for.
        """


def check_device(device: str) -> None:
    """Check the name of a device.

    Raises:
        ConfigError: It is not `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ConfigError(f"the device must be auto, cpu, cuda or cuda:N, not '{device}'")
