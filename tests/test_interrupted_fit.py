"""Ctrl-C in `Tagger.fit`: it stops within a step and says what is kept."""

import signal

import pytest

from glocal import Interrupted, Tagger, TrainListener
from tests.test_tagger import data, tagger


class StopsAt(TrainListener):
    """Presses Ctrl-C at some step."""

    def __init__(self, step):
        self.step, self.seen = step, 0

    def on_step(self, info):
        self.seen = info["step"]
        if self.seen == self.step:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_fit_stops_within_a_step_and_says_that_nothing_is_kept():
    texts, labels = data(48)
    model = tagger().fit(texts[:16], labels[:16])
    before = model.predict(texts[:2], k=1)
    stopping = StopsAt(2)
    with pytest.raises(Interrupted, match="nothing of it is kept"):
        model.fit(texts, labels, listener=stopping)
    assert stopping.seen <= 3
    assert model.predict(texts[:2], k=1) == before


def test_an_interrupted_fit_into_a_folder_is_resumed(tmp_path):
    texts, labels = data(48)
    with pytest.raises(Interrupted, match=r"stopped at step \d of \d.*state is saved"):
        tagger().fit(texts, labels, out=tmp_path / "m", listener=StopsAt(2))
    resumed = tagger().fit(texts, labels, out=tmp_path / "m", resume=True)
    whole = tagger().fit(texts, labels)
    assert resumed.predict(texts[:8], k=2) == whole.predict(texts[:8], k=2)


def test_ctrl_c_before_the_first_step_is_told_as_well(tmp_path):
    class Impatient(TrainListener):
        def on_message(self, text):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="nothing of it is kept"):
        Tagger("fast").fit(*data(48), listener=Impatient())
    with pytest.raises(Interrupted, match="starts again"):
        Tagger("fast").fit(*data(48), out=tmp_path / "m", listener=Impatient())
