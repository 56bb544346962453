"""Ctrl-C and SIGTERM as a request to stop after the current step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class StopSignals:
    """Records the request to stop; a second signal stops the run at once.

    Args:
        say: Receives a message at the first signal.
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
        self.say("Finishing this step; press Ctrl-C again to quit now")

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)
