"""Faithfulness: named words against random ones, on models whose right words are known."""

import json

import numpy as np
import pytest

from glocal.config import load_recipe
from glocal.data.corpus import Corpus
from glocal.lab.faithfulness import (
    Faithfulness,
    faithfulness_table,
    measure_faithfulness,
    named_words,
)
from glocal.predict.explain import Span, TagExplanation
from glocal.predict.predictor import Predictor
from glocal.predict.text_words import WordPlaces
from glocal.train.run import fit
from tests.cli.conftest import invoke
from tests.tiny import tiny_corpus, tiny_recipe

PADDED = Corpus.from_texts(
    [f"{text} over here and there it goes" for text in tiny_corpus(12, 3).texts()]
)


@pytest.fixture(scope="module")
def words_model(tmp_path_factory):
    out = tmp_path_factory.mktemp("faithful") / "words"
    fit(load_recipe("fast"), tiny_corpus(96), out=out, dev=tiny_corpus(32, 1), device="cpu")
    return out


def test_the_words_of_a_linear_model_carry_its_tags(words_model):
    predictor = Predictor.load(words_model, device="cpu")
    (found,) = measure_faithfulness(predictor, PADDED, seed=1)
    assert found.expert == "combined"
    assert found.n_texts == 12
    assert found.without_named > 2 * max(found.without_random, 0)
    assert found.named_alone < found.random_alone
    (again,) = measure_faithfulness(predictor, PADDED, seed=1)
    assert again == found


def test_losses_are_those_of_reading_the_changed_text(words_model, monkeypatch):
    predictor = Predictor.load(words_model, device="cpu")
    text = "the red fox over here and there it goes on"
    monkeypatch.setattr(
        predictor,
        "explain",
        lambda text, k, words: [
            TagExplanation("fox", "fox", 1.0, [], [Span(8, 11, "fox", 1, "all")])
        ],
    )
    (found,) = measure_faithfulness(predictor, Corpus.from_texts([text]))
    label = predictor.labels.index["fox"]

    def odds(changed):
        p = predictor.predict([changed], candidates=np.array([[label]]), calibrated=False).scores
        return float(np.log(p[0, 0]) - np.log1p(-p[0, 0]))

    whole = odds(text)
    expected = whole - odds("the red  over here and there it goes on")
    assert found.without_named == pytest.approx(expected, abs=1e-4)
    assert found.named_alone == pytest.approx(whole - odds("fox"), abs=1e-4)


def test_each_expert_is_measured_by_its_own_log_odds(tmp_path):
    recipe = tiny_recipe("glocalxml", 'experts=["D-last", "S"]')
    fit(recipe, tiny_corpus(96), out=tmp_path / "m", dev=tiny_corpus(32, 1), device="cpu")
    rows = measure_faithfulness(Predictor.load(tmp_path / "m", device="cpu"), PADDED)
    assert [row.expert for row in rows] == ["combined", "D-last", "S"]
    assert rows[2].without_named > rows[2].without_random
    table = faithfulness_table(rows, "texts")
    assert "combined" in table.markdown()


def test_texts_without_words_and_of_one_word_are_not_measured(words_model):
    predictor = Predictor.load(words_model, device="cpu")
    (found,) = measure_faithfulness(predictor, Corpus.from_texts(["…", "fox"]))
    assert found.n_texts == 0
    assert np.isnan(found.without_named)


def test_named_words_are_those_inside_the_spans():
    words = WordPlaces("the red fox ran")
    tag = TagExplanation(
        "a", "a", 1.0, [], [Span(4, 11, "red fox", 1, "all"), Span(0, 3, "the", 1, "S")]
    )
    assert named_words(words, tag, "all") == [1, 2]
    assert named_words(words, tag, "S") == [0]


def test_a_ratio_without_a_loss_is_infinite():
    assert Faithfulness("S", 1, 2.0, 0.5, 0, 0).ratio == 4.0
    assert Faithfulness("S", 1, 2.0, -0.1, 0, 0).ratio == float("inf")


def test_the_command_prints_ratios(words_model, tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in PADDED.texts()))
    shown = invoke("analyze", "faithfulness", words_model, file).stdout
    assert "combined" in shown
    document = json.loads(
        invoke("analyze", "faithfulness", words_model, file, "--limit", "5", "--json").stdout
    )
    assert document["combined"]["n_texts"] == 5
    assert document["combined"]["ratio"] is not None
