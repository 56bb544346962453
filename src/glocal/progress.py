"""Progress of long work: one shape of callback for the whole library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Receives how much is done; the total is None where it is not known."""

    def __call__(self, done: int, total: int | None, /) -> None:
        """Report progress."""


def report(progress: Progress | None, done: int, total: int | None) -> None:
    """Report progress to a callback, where there is one."""
    if progress is not None:
        progress(done, total)


# Returns the callback of a stage, by the stage's name: for work that has several.
StagedProgress = Callable[[str], Progress]


def silent(stage: str) -> Progress:
    """Return a callback that reports nothing, as `StagedProgress`."""
    return lambda done, total: None
