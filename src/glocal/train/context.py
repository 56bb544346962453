"""The context of a run: where it computes, keeps its state and reports."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from glocal.progress import Progress, StagedProgress
from glocal.train.checkpoint import RunFolder
from glocal.train.listener import TrainListener
from glocal.train.local_engine import LocalEngine

_MESSAGE_SECONDS = 10.0  # between two messages


@dataclass(frozen=True)
class RunContext:
    """Everything a run uses that changes neither its data nor its result.

    Attributes:
        engine: Where the run computes.
        folder: Holds the state of the run.
        listener: Receives progress events.
        resume: Whether to continue the run in the folder.
        started: When the run began, on the monotonic clock.
    """

    engine: LocalEngine
    folder: RunFolder
    listener: TrainListener = field(default_factory=TrainListener)
    resume: bool = False
    started: float = field(default_factory=time.monotonic)


def throttled_progress(listener: TrainListener) -> StagedProgress:
    """Return progress callbacks that send the listener a message every few seconds."""
    sent = time.monotonic()

    def stage(name: str) -> Progress:
        def progress(done: int, total: int | None) -> None:
            nonlocal sent
            if time.monotonic() - sent >= _MESSAGE_SECONDS:
                sent = time.monotonic()
                listener.on_message(f"{name}: {done:,} of {total:,}")

        return progress

    return stage
