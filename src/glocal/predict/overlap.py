"""Stages of work on chunks that overlap: one chunk is prepared while another is tagged or written.

Each stage has threads of its own. The compiled code of tokenizers, Arrow, numpy and torch releases
Python's lock, so processor and GPU are busy at the same time. Chunks are written in their order.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from glocal.companions.sparse.threads import n_threads

Chunk = TypeVar("Chunk")
_WAITING = 3  # chunks behind the one that is being written
_SWITCH_SECONDS = 0.0002  # after which a thread gives way to another, if it runs Python code


class Overlap(Generic[Chunk]):
    """Prepares, tags and writes chunks.

    Args:
        prepare: Turns a chunk into what `tag` needs; may run for two chunks at once.
        tag: Turns a chunk and what was prepared into what `write` needs.
        write: Writes a chunk.

    Attributes:
        seconds: Time that each stage has worked.
    """

    def __init__(
        self,
        prepare: Callable[[Chunk], Any],
        tag: Callable[[Chunk, Any], Any],
        write: Callable[[Chunk, Any], None],
    ) -> None:
        self._prepare, self._tag, self._write = prepare, tag, write
        sizes = {"prepare": min(2, n_threads(0)), "tag": 1, "write": 1}
        self._pools = {name: ThreadPoolExecutor(size, name) for name, size in sizes.items()}
        self.seconds = dict.fromkeys(sizes, 0.0)
        self._pending: deque[Future[None]] = deque()
        self._failed = False
        # The thread that feeds the GPU must not wait long for Python's lock.
        self._switching = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)

    def put(self, chunk: Chunk) -> None:
        """Start the work on a chunk; wait where too many are under way.

        Raises:
            Exception: An earlier chunk has failed; nothing after it was written.
        """
        prepared = self._pools["prepare"].submit(self._timed, "prepare", self._prepare, chunk)

        def tag() -> Any:
            done = prepared.result()
            return self._timed("tag", self._tag, chunk, done)

        tagged = self._pools["tag"].submit(tag)

        def write() -> None:
            if self._failed:
                return
            try:
                done = tagged.result()
                self._timed("write", self._write, chunk, done)
            except BaseException:
                self._failed = True
                raise

        self._pending.append(self._pools["write"].submit(write))
        while len(self._pending) > _WAITING:
            self._pending.popleft().result()

    def drain(self) -> None:
        """Wait until every chunk is written."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """End the threads; chunks that no thread works on are dropped."""
        self._failed = True
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in self._pools.values():
            pool.shutdown()
        sys.setswitchinterval(self._switching)

    def _timed(self, stage: str, work: Callable[..., Any], *arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return work(*arguments)
        finally:
            self.seconds[stage] += time.perf_counter() - started
