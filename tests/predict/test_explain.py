"""Explanations: spans are exact characters of the text, weights are shares of the attention."""

import itertools
import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glocal.encoders.encoder import Encoder
from glocal.errors import ConfigError
from glocal.predict.explain import Span, _top_words
from tests.encoders.folders import xlnet_folder
from tests.predict.test_predictor import predictor_of
from tests.tiny import SYSTEM_RECIPES

ODD = [
    "The RED cat, and a blue-green owl!",
    "Ünïcödé ŃAMES: straße, naïve café",
    "emoji 🐈‍⬛ cat 👩🏽‍🚀 dog",
    "中文字符 and 日本語 mixed",
    "e\u0301 combining a\u0308ccents",
    "\ttabs\nand  double  spaces ",
    "ﬁne ligatures Ⅳ ½",
]


@pytest.fixture(scope="module")
def predictor():
    return predictor_of("encoder.max_length=64")


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    folder = xlnet_folder(tmp_path_factory.mktemp("encoder") / "xlnet")
    return predictor_of(f"encoder.name=random:{folder}", "encoder.max_length=64")


def check_spans(spans, text):
    for span in spans:
        assert text[span.start : span.end] == span.text
        assert span.text == span.text.strip()
        assert span.text
        assert 0 < span.weight <= 1
    assert sum(span.weight for span in spans) <= 1 + 1e-5
    weights = [span.weight for span in spans]
    assert weights == sorted(weights, reverse=True)
    places = sorted((span.start, span.end) for span in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("kind", ["predictor", "sentencepiece"])
def test_spans_are_characters_of_the_text(request, kind, text):
    explanations = request.getfixturevalue(kind).explain(text, k=4, words=50)
    assert len(explanations) == 4
    for explanation in explanations:
        assert explanation.spans
        check_spans(explanation.spans, text)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(max_size=60))
def test_any_text_can_be_explained(predictor, text):
    explanations = predictor.explain(text, k=2, words=100)
    assert len(explanations) == 2
    for explanation in explanations:
        check_spans(explanation.spans, text)


def test_whole_words_are_shown_and_no_more_than_asked_for(predictor):
    text = "the red cat sat"
    first = predictor.explain(text, k=1, words=50)[0]
    assert sorted(span.text for span in first.spans) == ["cat", "red", "sat", "the"]
    few = predictor.explain(text, k=1, words=2)[0]
    assert few.spans == first.spans[:2]


def test_labels_scores_and_shares_are_those_of_prediction(predictor):
    text = "the red cat"
    found = predictor.predict([text], k=3, per_expert=True)
    full = predictor.predict([text], k=len(predictor.labels), per_expert=True)
    explanations = predictor.explain(text, k=3)
    assert len(explanations) == 3
    for place, explanation in enumerate(explanations):
        label = found.indices[0, place]
        assert explanation.label_id == predictor.labels.ids[label]
        assert explanation.score == pytest.approx(float(found.scores[0, place]))
        assert list(explanation.expert_scores) == predictor.expert_names
        for name, score in explanation.expert_scores.items():
            position = full.experts[name].indices[0].tolist().index(label)
            assert score == pytest.approx(float(full.experts[name].scores[0, position]), abs=1e-6)
        mean = sum(explanation.expert_scores.values()) / 2
        assert explanation.score == pytest.approx(mean, abs=1e-6)


def test_an_empty_text_has_tags_but_no_words(predictor):
    explanations = predictor.explain("", k=2)
    assert len(explanations) == 2
    assert all(explanation.spans == [] for explanation in explanations)


def test_a_long_text_is_explained_up_to_where_it_was_read(predictor):
    text = "red cat " * 5000
    spans = predictor.explain(text, k=1, words=1000)[0].spans
    assert spans
    assert max(span.end for span in spans) < 200
    check_spans(spans, text)


def test_a_k_that_cannot_be_met_is_refused(predictor):
    with pytest.raises(ConfigError, match="labels, not 99"):
        predictor.explain("the cat", k=99)


def test_without_an_attention_expert_there_are_no_words():
    explanation = predictor_of('experts=["D-last"]').explain("the red cat", k=1)[0]
    assert explanation.spans == []
    assert list(explanation.expert_scores) == ["D-last"]


@pytest.mark.parametrize("name", SYSTEM_RECIPES.values())
def test_every_system_can_be_asked(name):
    predictor = predictor_of(name=name)
    explanations = predictor.explain("the red cat", k=2)
    assert len(explanations) == 2
    for explanation in explanations:
        assert set(explanation.expert_scores) == set(predictor.expert_names)
        check_spans(explanation.spans, "the red cat")


def test_several_attention_experts_share_the_weight(predictor):
    predictor = predictor_of('experts=["D-last", "A-1", "A-0"]')
    spans = predictor.explain("the red cat", k=1, words=50)[0].spans
    assert len(spans) == 3
    check_spans(spans, "the red cat")


def test_explanations_are_plain_values(predictor):
    explanation = predictor.explain("the red cat", k=1)[0]
    assert json.loads(json.dumps(explanation.to_dict())) == explanation.to_dict()


def test_pieces_of_a_word_are_summed_and_spaces_left_out():
    weights = torch.tensor([0.1, 0.2, 0.25, 0.15, 0.3])
    offsets = [(0, 0), (0, 2), (2, 4), (4, 9), (0, 0)]
    spans = _top_words(weights, "abcd efgh", offsets, [None, 0, 0, 1, None], 5)
    assert [(s.start, s.end, s.text) for s in spans] == [(0, 4, "abcd"), (5, 9, "efgh")]
    assert [s.weight for s in spans] == pytest.approx([0.45, 0.15])
    assert isinstance(spans[0], Span)


@pytest.mark.parametrize("overrides", [(), ("candidates.mode=shortlist",)])
def test_a_text_is_encoded_once(monkeypatch, overrides):
    predictor, calls = predictor_of(*overrides), []
    forward = Encoder.forward
    monkeypatch.setattr(
        Encoder, "forward", lambda *args, **options: calls.append(1) or forward(*args, **options)
    )
    predictor.explain("the red cat", k=3)
    assert len(calls) == 1
