"""The events of a run, from which the command line draws its progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TrainListener:
    """Receives the events of a run and ignores them; subclasses override what they show."""

    def on_start(self, info: Mapping[str, Any]) -> None:
        """Called before the first step: step, steps, epochs, documents, labels, device."""

    def on_step(self, info: Mapping[str, Any]) -> None:
        """Called every few steps: step, steps, epoch, loss, docs_per_second, seconds_left."""

    def on_evaluation(self, info: Mapping[str, Any]) -> None:
        """Called after an evaluation on dev: step, epoch, scores, experts (their scores), best."""

    def on_message(self, text: str) -> None:
        """Called with one line for the user."""

    def on_end(self, info: Mapping[str, Any]) -> None:
        """Called after the model is saved: path, seconds, metrics."""
