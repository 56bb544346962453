"""int8 is judged on dev texts: how much may be lost, when to stop, what is reported."""

import numpy as np
import pytest

from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.export.int8_check import DevCheck

TEXTS = 600


class Check(DevCheck):
    """Precisions are those of a dictionary, by the name of the model."""

    def __init__(self, precisions, **options):
        self.precisions = precisions
        dev = Corpus.from_texts(["a"] * TEXTS, [["l"]] * TEXTS)
        super().__init__("fp32", dev, most_lost=0.002, rounds=4, **options)

    def _score(self, model, start, stop):
        return self.precisions[model][start:stop]

    def _open(self, model):
        return model

    def _sample_logits(self, model):
        return np.zeros(1) if model == "fp32" else np.ones(1)


def lost(count, *, first=0):
    """P@1, P@3 and P@5 of texts, of which some lose their best label."""
    rows = np.ones((TEXTS, 3))
    rows[first : first + count, 0] = 0
    return rows


@pytest.mark.parametrize(("count", "good"), [(0, True), (1, True), (2, False)])
def test_a_graph_may_lose_a_fifth_of_a_point(count, good):
    check = Check({"fp32": lost(0), "int8": lost(count, first=400)})
    assert check.good_enough("int8") is good
    assert f"P@1 {-100 * count / TEXTS:+.2f}, P@3 +0.00, P@5 +0.00 in int8" in check.summary()
    assert check.scores(good)["int8"]["P@1"] == pytest.approx(1 - count / TEXTS)


def test_a_graph_that_loses_far_more_is_refused_early():
    seen = []
    check = Check(
        {"fp32": lost(0), "bad": lost(100), "good": lost(0)},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (TEXTS, 2 * TEXTS)
    assert not check.good_enough("bad")
    assert check.summary().endswith("on 128 of 600 texts")
    assert seen[-1] == (TEXTS + 128, 2 * TEXTS)
    assert check.good_enough("good")
    # Two more graphs may have to be scored; the rest of the refused one need not be.
    assert seen[-1] == (2 * TEXTS + 128, 4 * TEXTS + 128)
    assert check.scores(True)["int8"]["P@1"] == 1.0
    assert check.harm("bad") == 1.0


def test_texts_without_labels_cannot_check_anything():
    with pytest.raises(DataError, match="none of the dev texts has a label"):
        Check({"fp32": np.empty((0, 3))})
