"""Labels of a band ranked among themselves."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from glocal.data.corpus import Corpus
from glocal.metrics.documents import DocumentScores
from glocal.predict.band_ranking import Interval, rank_within_bands
from glocal.predict.report_tables import ranking_table
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

TRAIN = Corpus.from_texts(
    [f"t{i}" for i in range(8)],
    [["a", "b"], ["a", "c"], ["a"], ["a"], ["a", "b"], ["d"], ["d"], ["d"]],
)
TABLE = LabelTable(list("abcdyz"), list("abcdyz"))
SPACE = LabelSpace.build(TRAIN, table=TABLE, score_unseen=True)
BANDS = Bands.parse("few=1-2,frequent=3-")


class FixedPredictor:
    """Ranks allowed labels in a fixed order, whatever the text."""

    labels = SPACE
    expert_names = ("D-last", "A-1")

    def __init__(self, order):
        self.order, self.asked = list(order), []

    def predict_corpus(self, corpus, *, k, only, per_expert, progress):
        self.asked.append((len(corpus), sorted(only), k))
        assert per_expert
        allowed = [SPACE.index[label] for label in self.order if label in only][:k]
        indices = np.tile(np.array(allowed, dtype=np.int64), (len(corpus), 1))
        scores = np.tile(np.linspace(0.9, 0.1, len(allowed), dtype=np.float32), (len(corpus), 1))
        found = Predictions(indices, scores)
        return replace(found, experts=dict.fromkeys(self.expert_names, found))


def ranked(gold, order="abcdyz", k=5):
    predictor = FixedPredictor(order)
    corpus = Corpus.from_texts([f"x{i}" for i in range(len(gold))], gold)
    found = rank_within_bands(predictor, corpus, bands=BANDS, k=k)
    return {(r.band, r.part, r.with_gold): r for r in found}, predictor


def test_each_band_is_ranked_alone_on_the_texts_that_have_it():
    found, predictor = ranked([["a", "c"], ["z"], ["d"], ["b", "z"]])
    every, gold = found["unseen", "combined", False], found["unseen", "combined", True]
    assert (every.n_labels, every.n_documents) == (2, 2)
    assert (gold.n_labels, gold.n_documents) == (1, 2)
    assert every.scores["nDCG@5"].value == pytest.approx(1 / np.log2(3))  # z is behind y
    assert gold.scores["nDCG@5"].value == 1.0
    few = found["few", "A-1", False]
    assert (few.n_labels, few.n_documents) == (2, 2)
    assert few.scores["nDCG@5"].value == pytest.approx((1 + 1 / np.log2(3)) / 2)
    assert found["frequent", "combined", False].scores["RP@5"].value == 1.0
    assert predictor.asked[:2] == [(2, ["y", "z"], 2), (2, ["z"], 1)]


def test_labels_of_another_split_compete_too():
    predictor = FixedPredictor("abcdyz")
    corpus, other = Corpus.from_texts(["x"], [["z"]]), Corpus.from_texts(["v"], [["y", "new", "a"]])
    (every, gold) = (
        r
        for r in rank_within_bands(predictor, corpus, bands=BANDS, more_gold=other)
        if r.part == "combined"
    )
    assert (gold.n_labels, gold.n_documents) == (2, 1)
    assert gold.scores == every.scores
    assert gold.scores["nDCG@5"].value == pytest.approx(1 / np.log2(3))


def test_gold_outside_the_label_space_is_missed():
    found, _ = ranked([["z"], ["new"]])
    ranking = found["unseen", "combined", True]
    assert (ranking.n_labels, ranking.n_documents) == (2, 2)
    assert ranking.scores["nDCG@5"].value == 0.5
    alone, _ = ranked([["new"]])
    assert alone["unseen", "combined", True].scores["nDCG@5"].value == 0.0


def test_band_that_the_model_cannot_predict_has_no_value(monkeypatch):
    monkeypatch.setattr(FixedPredictor, "labels", LabelSpace.build(TRAIN))
    found, _ = ranked([["a", "nowhere"], ["b"]])
    unseen = found["unseen", "combined", False]
    assert unseen.scores == {"nDCG@5": None, "RP@5": None}
    assert (unseen.n_labels, unseen.n_documents) == (1, 1)
    shown = [row for row in ranking_table(list(found.values())).rows if row[0] == "unseen"]
    assert shown[0][-2:] == ("–", "–")
    assert asdict(unseen)["scores"]["nDCG@5"] is None


def test_a_band_without_gold_is_left_out():
    found, _ = ranked([["a"], ["d"]])
    assert {band for band, _, _ in found} == {"frequent"}


def test_intervals_hold_the_value_and_narrow_with_more_documents():
    values = np.random.default_rng(0).random(400)
    few, many = (Interval.of(DocumentScores.mean(v)) for v in (values[:20], values))
    for interval, v in ((few, values[:20]), (many, values)):
        assert interval.value == pytest.approx(v.mean())
        assert interval.low < interval.value < interval.high
    assert many.high - many.low < few.high - few.low
    error = values.std() / np.sqrt(400)
    assert many.high - many.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_plain_values_for_json():
    found, _ = ranked([["z"]])
    plain = asdict(found["unseen", "D-last", True])
    assert plain["scores"]["nDCG@5"] == {"value": 1.0, "low": 1.0, "high": 1.0}
