"""Probabilities of the labels of each band beside what is gold."""

import numpy as np
import pytest

from glocal.data.corpus import Corpus
from glocal.predict.band_calibration import calibration_by_band
from glocal.predict.report_tables import band_calibration_table
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

TRAIN = Corpus.from_texts([f"t{i}" for i in range(5)], [["a"], ["a"], ["a"], ["b"], ["b"]])
SPACE = LabelSpace.build(TRAIN, table=LabelTable(list("abz"), list("abz")), score_unseen=True)
BANDS = Bands.parse("few=1-2,frequent=3-")


class FixedPredictor:
    """Gives labels the same probabilities, whatever the text."""

    labels = SPACE

    def __init__(self, **probabilities):
        self.probabilities = probabilities

    def predict_corpus(self, corpus, *, k, progress):
        assert k == 3
        order = sorted(self.probabilities, key=lambda label: -self.probabilities[label])
        indices = np.array([SPACE.index[label] for label in order] + [-1] * (3 - len(order)))
        scores = np.array([self.probabilities[label] for label in order] + [0.0] * (3 - len(order)))
        shape = (len(corpus), 1)
        return Predictions(np.tile(indices, shape), np.tile(scores.astype(np.float32), shape))


def test_each_band_is_compared_with_its_own_gold():
    corpus = Corpus.from_texts(["x", "y", "v", "w"], [["a", "z"], ["a"], ["b"], []])
    predictor = FixedPredictor(a=0.5, b=0.05, z=0.2)
    found = {row.band: row for row in calibration_by_band(predictor, corpus, bands=BANDS)}
    assert list(found) == ["unseen", "few", "frequent"]
    unseen = found["unseen"]  # one of the three texts with labels has z
    assert (unseen.n, unseen.n_likely) == (3, 3)
    assert (unseen.mean, unseen.observed) == (pytest.approx(0.2), pytest.approx(1 / 3))
    assert unseen.error == pytest.approx(1 / 3 - 0.2)
    few = found["few"]
    assert (few.n, few.n_likely, few.error) == (3, 0, pytest.approx(1 / 3 - 0.05))
    assert few.to_dict()["mean"] is None
    assert found["frequent"].observed == pytest.approx(2 / 3)
    assert "Calibration by band" in band_calibration_table(list(found.values())).title


def test_bands_without_a_prediction_have_no_row():
    corpus = Corpus.from_texts(["x"], [["z"]])
    (row,) = calibration_by_band(FixedPredictor(a=0.9), corpus, bands=BANDS)
    assert (row.band, row.n, row.observed) == ("frequent", 1, 0.0)
