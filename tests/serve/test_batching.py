import threading
from concurrent.futures import wait

import numpy as np
import pytest

from glocal.ranking.predictions import Predictions
from glocal.serve.batching import Batcher, Busy, Choice


class Counting:
    """A predictor that gives each text its length as a label, and records its batches."""

    def __init__(self):
        self.batches, self.gate = [], threading.Event()
        self.gate.set()

    def predict(self, texts, *, k, only=None, exclude=None):
        self.gate.wait()
        self.batches.append((list(texts), k, only))
        if "bad" in texts:
            raise RuntimeError("a bad text")
        indices = np.array([[len(text) + place for place in range(k)] for text in texts])
        scores = np.tile(np.linspace(0.9, 0.1, k, dtype=np.float32), (len(texts), 1))
        return Predictions(indices.astype(np.int64), scores)


@pytest.fixture
def predictor():
    return Counting()


@pytest.fixture
def batcher(predictor):
    running = Batcher(predictor, max_batch=4, max_queued=10)
    yield running
    running.close()


def fill(batcher, predictor, *requests):
    """Queue requests while the worker is busy with a first one; return their results."""
    predictor.gate.clear()
    first = batcher.predict(["first"], Choice(1))
    while batcher.queued:
        pass
    futures = [batcher.predict(texts, choice) for texts, choice in requests]
    predictor.gate.set()
    wait([first, *futures])
    return futures


def test_one_request_is_computed_at_once_and_alone(batcher, predictor):
    found = batcher.predict(["ab"], Choice(2)).result(10)
    assert found.indices.tolist() == [[2, 3]]
    assert predictor.batches == [(["ab"], 2, None)]


def test_what_waits_is_computed_together(batcher, predictor):
    one, two = fill(batcher, predictor, (["a", "bb"], Choice(1)), (["ccc"], Choice(3)))
    assert predictor.batches[1] == (["a", "bb", "ccc"], 3, None)
    assert one.result().indices.tolist() == [[1], [2]]
    assert two.result().indices.tolist() == [[3, 4, 5]]


def test_other_labels_and_full_batches_wait_for_the_next_round(batcher, predictor):
    fill(
        batcher,
        predictor,
        (["a"] * 3, Choice(1)),
        (["b"], Choice(1, only=("x",))),
        (["c"] * 2, Choice(1)),
        (["d"], Choice(1)),
    )
    assert [(len(texts), only) for texts, _, only in predictor.batches[1:]] == [
        (4, None),
        (1, ("x",)),
        (2, None),
    ]


def test_a_bad_request_fails_alone(batcher, predictor):
    good, bad = fill(batcher, predictor, (["a"], Choice(1)), (["bad"], Choice(1)))
    assert good.result().indices.tolist() == [[1]]
    with pytest.raises(RuntimeError, match="a bad text"):
        bad.result()


def test_a_full_queue_refuses_at_once(batcher, predictor):
    predictor.gate.clear()
    first = batcher.predict(["first"], Choice(1))
    while batcher.queued:
        pass
    waiting = batcher.predict(["a"] * 10, Choice(1))
    with pytest.raises(Busy):
        batcher.predict(["b"], Choice(1))
    predictor.gate.set()
    wait([first, waiting])
    assert batcher.queued == 0


def test_a_cancelled_request_is_not_computed(batcher, predictor):
    predictor.gate.clear()
    first = batcher.predict(["first"], Choice(1))
    while batcher.queued:
        pass
    gone, kept = batcher.predict(["gone"], Choice(1)), batcher.predict(["kept"], Choice(1))
    assert gone.cancel()
    predictor.gate.set()
    wait([first, kept])
    assert predictor.batches[-1][0] == ["kept"]


def test_calls_run_between_batches_and_after_close(batcher):
    assert batcher.run(lambda: 42).result(10) == 42
    batcher.close()
    assert batcher.run(lambda: 43).result(10) == 43
