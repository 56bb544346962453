"""Batches prepared by a thread while the device computes."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any

import torch

from glocal.data.batches import Batch


class Prefetch:
    """Yields batches that a thread prepares, in pinned memory where a GPU reads them."""

    def __init__(self, batches: Iterator[Batch], device: torch.device, depth: int = 4) -> None:
        self.batches, self.pinned = batches, device.type == "cuda"
        self.ready: queue.Queue[Any] = queue.Queue(depth)
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._fill, daemon=True)

    def _fill(self) -> None:
        try:
            for batch in self.batches:
                self._put(batch.pin() if self.pinned else batch)
                if self.closed.is_set():
                    return
            self._put(StopIteration())
        except BaseException as error:  # passed to the loop, which raises it
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self.closed.is_set():
            with contextlib.suppress(queue.Full):
                self.ready.put(item, timeout=0.1)
                return

    def __enter__(self) -> Iterator[Batch]:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closed.set()
        self.thread.join()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        item = self.ready.get()
        if isinstance(item, BaseException):
            raise item
        batch: Batch = item
        return batch
