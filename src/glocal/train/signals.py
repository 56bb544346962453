"""Ctrl-C and SIGTERM as a request to stop after the step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["StopSignals"]


class StopSignals:
    """Notes that the run should stop; a second signal stops it at once.

    Args:
        say: Is told when the first signal comes.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.requested = False
        self.old: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.old[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.say("stopping after this step; once more stops at once")

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)
