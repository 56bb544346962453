import threading

import pytest

from glocal.predict.overlap import Overlap


def test_chunks_are_written_in_their_order():
    slow, written = threading.Event(), []

    def prepare(chunk):
        if chunk == 0:
            slow.wait(5)  # later chunks are ready first
        else:
            slow.set()
        return 2 * chunk

    overlap = Overlap(
        prepare, lambda chunk, prepared: chunk + prepared, lambda *a: written.append(a)
    )
    if overlap._pools["prepare"]._max_workers == 1:
        slow.set()
    for chunk in range(20):
        overlap.put(chunk)
    overlap.drain()
    overlap.close()
    assert written == [(chunk, 3 * chunk) for chunk in range(20)]
    assert set(overlap.seconds) == {"prepare", "tag", "write"}


@pytest.mark.parametrize("stage", ["prepare", "tag", "write"])
def test_nothing_is_written_after_a_failure(stage):
    written = []

    def work(name, result):
        def run(chunk, *_):
            if name == stage and chunk == 3:
                raise ValueError(f"{name} of {chunk}")
            return result(chunk)

        return run

    overlap = Overlap(
        work("prepare", str), work("tag", str), work("write", lambda chunk: written.append(chunk))
    )

    def feed():
        for chunk in range(10):
            overlap.put(chunk)
        overlap.drain()

    with pytest.raises(ValueError, match=f"{stage} of 3"):
        feed()
    overlap.close()
    assert written == [0, 1, 2]


def test_few_chunks_are_under_way():
    free, started = threading.Event(), []

    def prepare(chunk):
        started.append(chunk)

    overlap = Overlap(prepare, lambda *_: free.wait(5), lambda *_: None)
    feeder = threading.Thread(target=lambda: [overlap.put(chunk) for chunk in range(50)])
    feeder.start()
    feeder.join(0.3)
    assert feeder.is_alive()
    assert len(started) < 10
    free.set()
    feeder.join(5)
    overlap.drain()
    overlap.close()
    assert len(started) == 50
