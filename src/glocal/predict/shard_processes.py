"""Shards predicted by processes of this machine.

Each worker is a process of its own (`shard_worker.py`), fed by a thread here: it gets the job, then
one shard at a time as a line of JSON, and answers each with a line. A worker that is killed or
breaks is replaced, and its shard given to the new one; a shard whose workers are lost
`MAX_LOSSES` times in a row ends the run. Errors of the library and of the operating system, such as
a full disk, end the run with the worker's message.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from glocal.companions.sparse.threads import n_threads
from glocal.predict.shard_worker import raise_problem
from glocal.predict.shards import Shard, ShardJob

logger = logging.getLogger(__name__)

MAX_LOSSES = 5  # workers lost in a row with the same shard
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")


class ProcessEngine:
    """Predicts shards on processes of this machine, which share its cores.

    Args:
        workers: Number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._n_workers = workers

    def run(self, job: ShardJob, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Predict every shard and yield each when its tags are published, in any order."""
        threads = max(1, n_threads(0) // self._n_workers)
        feed = _Feed(shards)
        feeders = [_Feeder(job, feed, threads) for _ in range(self._n_workers)]
        for feeder in feeders:
            feeder.start()
        running = len(feeders)
        try:
            while running:
                answer = feed.answers.get()
                if isinstance(answer, BaseException):
                    raise answer
                if answer is None:
                    running -= 1
                else:
                    yield answer
        finally:
            feed.stopped.set()
            for feeder in feeders:
                feeder.stop()
            for feeder in feeders:
                feeder.join()


class _Feed:
    """The shards still to do, which several threads take from, and the answers."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._shards = iter(shards)
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        self.answers: queue.SimpleQueue[Shard | BaseException | None] = queue.SimpleQueue()

    def take(self) -> Shard | None:
        """Return the next shard, or None at the end."""
        with self._lock:
            return None if self.stopped.is_set() else next(self._shards, None)


class _Feeder(threading.Thread):
    """Feeds one worker, and starts another when it is lost."""

    def __init__(self, job: ShardJob, feed: _Feed, threads: int) -> None:
        super().__init__(daemon=True)
        self._job, self._feed, self._threads = job, feed, threads
        self._worker: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Give shards to the worker until there are none."""
        try:
            while (shard := self._feed.take()) is not None:
                self._predict(shard)
                self._feed.answers.put(shard)
            self._feed.answers.put(None)
        except BaseException as error:
            self._feed.answers.put(error)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the worker, whatever it does."""
        if (worker := self._worker) is not None:
            worker.kill()
            _ended(worker)

    def _predict(self, shard: Shard) -> None:
        for loss in range(1, MAX_LOSSES + 1):
            worker = self._running_worker()
            with contextlib.suppress(BrokenPipeError):
                _send(worker, shard.to_list())
            assert worker.stdout is not None
            if answer := worker.stdout.readline():
                raise_problem(json.loads(answer))
                return
            if self._feed.stopped.is_set():
                return
            status = _ended(worker)
            self._worker = None
            logger.warning(
                "a worker was lost (exit status %d) with shard %d; another one takes it (%d of %d)",
                status,
                shard.number,
                loss,
                MAX_LOSSES,
            )
        raise self._job.lost(shard, MAX_LOSSES)

    def _running_worker(self) -> subprocess.Popen[bytes]:
        if self._worker is None:
            threads = dict.fromkeys(_THREADS, str(self._threads))
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "glocal.predict.shard_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **threads},
            )
            with contextlib.suppress(BrokenPipeError):
                _send(self._worker, self._job.to_mapping())
        return self._worker


def _ended(worker: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a worker and close its pipes; return its exit status."""
    status = worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()
    return status


def _send(worker: subprocess.Popen[bytes], message: Any) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(message).encode() + b"\n")
    worker.stdin.flush()
