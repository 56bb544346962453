"""A parallel map on threads that yields results in order and holds few of them at a time.

Arrow, numpy and scipy release Python's lock inside their loops, so threads are enough and nothing
has to be copied between processes.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
CHANGE_THREADS = 4  # of a change of labels: more would wait for Python's lock, as would a network
FEW_TEXTS = 64  # texts up to which starting threads takes longer than it saves


def n_threads(threads: int, *, texts: int | None = None) -> int:
    """Return the number of threads to use.

    Args:
        threads: The number asked for; 0 stands for `OMP_NUM_THREADS` where it is set, else for
            all cores this process may use.
        texts: Number of texts to score; for a few of them 0 stands for one thread.
    """
    if threads > 0:
        return threads
    if texts is not None and texts <= FEW_TEXTS:
        return 1
    if (limit := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(limit) > 0:
        return int(limit)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def change_threads() -> int:
    """Return the number of threads that a change of labels uses."""
    return min(CHANGE_THREADS, n_threads(0))


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> Iterator[Result]:
    """Apply a function to each item and yield the results in the items' order.

    Args:
        function: The function; it must not depend on the order of the calls.
        items: Consumed only as results are taken, so that a generator is never read far ahead.
        threads: Number of threads; 1 computes in the caller's thread.
    """
    if threads == 1:
        yield from map(function, items)
        return
    queue = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque(
            pool.submit(function, item) for item in itertools.islice(queue, 2 * threads)
        )
        try:
            while pending:
                result = pending.popleft().result()
                for item in itertools.islice(queue, 1):
                    pending.append(pool.submit(function, item))
                yield result
        finally:
            for future in pending:
                future.cancel()
