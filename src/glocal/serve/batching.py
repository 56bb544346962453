"""Dynamic batching: one worker thread for each model computes whatever waits, without a delay.

- A request that arrives while the worker is idle is computed at once and alone.
- Requests that arrive while it computes wait, and are computed together in its next round, as long
  as they choose from the same labels; the predictor sorts their texts by length.
- The number of waiting texts is bounded: `Busy` is raised at once when there is no room.
- If a batch fails, its requests are computed one by one, so that only the guilty one fails.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor
    from glocal.ranking.predictions import Predictions

Result = TypeVar("Result")
LabelIds = tuple[str, ...] | None


class Busy(Exception):
    """More texts wait than the server accepts."""


@dataclass(frozen=True)
class Choice:
    """Labels to choose from and how many of them."""

    k: int
    only: LabelIds = None
    exclude: LabelIds = None


@dataclass
class _Work:
    """A request that waits: texts to tag, or a call that the worker makes alone."""

    texts: Sequence[str]
    choice: Choice | None = None
    call: Callable[[], Any] | None = None
    answer: Future[Any] = field(default_factory=Future)

    def joins(self, first: _Work) -> bool:
        """Return whether two requests can be computed together."""
        if self.choice is None or first.choice is None:
            return False
        mine, theirs = self.choice, first.choice
        return (mine.only, mine.exclude) == (theirs.only, theirs.exclude)


@dataclass(eq=False)
class Batcher:
    """Runs the requests for one model in a worker thread.

    Args:
        predictor: The model.
        max_batch: Largest number of texts computed together; a larger request is computed alone.
        max_queued: Largest number of texts that wait.
        on_batch: Called with the number of texts of each batch.

    Attributes:
        queued: Number of texts that wait.
    """

    predictor: Predictor
    max_batch: int = field(kw_only=True)
    max_queued: int = field(kw_only=True)
    on_batch: Callable[[int], None] = field(default=lambda size: None, kw_only=True)
    queued: int = field(default=0, init=False)
    _waiting: deque[_Work] = field(default_factory=deque, init=False)
    _closing: bool = field(default=False, init=False)
    _running: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)

    def predict(self, texts: Sequence[str], choice: Choice) -> Future[Predictions]:
        """Queue texts to tag.

        Raises:
            Busy: There is no room for them.
        """
        return self._put(_Work(texts, choice))

    def run(self, call: Callable[[], Result]) -> Future[Result]:
        """Queue a call that the worker makes between two batches; it counts as one text.

        Raises:
            Busy: There is no room for it.
        """
        return self._put(_Work([""], call=call))

    def close(self) -> None:
        """End the worker when nothing waits any more; does not block."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _put(self, work: _Work) -> Future[Any]:
        with self._changed:
            if self.queued + len(work.texts) > self.max_queued:
                raise Busy
            self._waiting.append(work)
            self.queued += len(work.texts)
            if not self._running:  # the first request, or one that came after `close`
                self._running = True
                threading.Thread(target=self._work, name="glocal-batcher", daemon=True).start()
            self._changed.notify()
        return work.answer

    def _work(self) -> None:
        while batch := self._next_batch():
            running = [work for work in batch if work.answer.set_running_or_notify_cancel()]
            if running:
                self._compute(running)

    def _next_batch(self) -> list[_Work]:
        """Wait for requests and take those that can be computed together; empty at the end."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    self._running = False
                    return []
                self._changed.wait()
            first = self._waiting.popleft()
            batch, size, rest = [first], len(first.texts), deque[_Work]()
            while self._waiting:
                work = self._waiting.popleft()
                if size + len(work.texts) <= self.max_batch and work.joins(first):
                    batch.append(work)
                    size += len(work.texts)
                else:
                    rest.append(work)
            self._waiting = rest
            self.queued -= size
            return batch

    def _compute(self, batch: list[_Work]) -> None:
        try:
            results = self._results(batch)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for work in batch:
                self._compute([work])
            return
        for work, result in zip(batch, results, strict=True):
            work.answer.set_result(result)

    def _results(self, batch: list[_Work]) -> list[Any]:
        first = batch[0]
        if first.call is not None:
            return [first.call()]
        choices = [work.choice for work in batch if work.choice is not None]
        texts = [text for work in batch for text in work.texts]
        self.on_batch(len(texts))
        found = self.predictor.predict(
            texts,
            k=max(choice.k for choice in choices),
            only=choices[0].only,
            exclude=choices[0].exclude,
        )
        ends = np.cumsum([len(work.texts) for work in batch]).tolist()
        return [
            found.take(np.arange(end - len(work.texts), end)).head(choice.k)
            for work, choice, end in zip(batch, choices, ends, strict=True)
        ]
