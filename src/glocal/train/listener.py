"""How a run tells what it is doing; the command line draws its progress bar from this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["TrainListener"]


class TrainListener:
    """Does nothing; subclasses show what they want to."""

    def on_start(self, info: Mapping[str, Any]) -> None:
        """Before the first step: step, steps, epochs, documents, labels, device."""

    def on_step(self, info: Mapping[str, Any]) -> None:
        """Now and then: step, steps, epoch, loss, docs_per_second, seconds_left."""

    def on_evaluation(self, info: Mapping[str, Any]) -> None:
        """Called after an evaluation on dev: step, epoch, scores, experts (their scores), best."""

    def on_message(self, text: str) -> None:
        """Something worth a line."""

    def on_end(self, info: Mapping[str, Any]) -> None:
        """After the model is saved: path, seconds."""
