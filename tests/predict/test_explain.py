"""Explanations: spans are exact characters of the text, weights are shares of the evidence."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glocal.encoders.encoder import Encoder, trace_embeddings
from glocal.errors import ConfigError
from glocal.log_odds import log_odds
from glocal.predict.explain import (
    ALL,
    ExpertPart,
    TagExplanation,
    expert_parts,
    prior_log_odds,
    tag_spans,
)
from glocal.predict.explanation_report import html_report
from glocal.predict.text_words import WordPlaces
from glocal.predict.word_evidence import TracedReading
from glocal.ranking.calibration import Calibration
from glocal.ranking.calibration_curve import CalibrationCurve
from glocal.ranking.combination import Combination
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


def check_spans(explanation, text):
    for expert in [ALL, *(part.name for part in explanation.experts)]:
        spans = explanation.spans_of(expert)
        for span in spans:
            assert text[span.start : span.end] == span.text
            assert span.text == span.text.strip()
            assert span.text
            assert 0 < span.weight <= 1 + 1e-9
        assert sum(span.weight for span in spans) <= 1 + 1e-9
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
        assert explanation.spans_of()
        check_spans(explanation, text)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(max_size=60))
def test_any_text_can_be_explained(predictor, text):
    explanations = predictor.explain(text, k=2, words=100)
    assert len(explanations) == 2
    for explanation in explanations:
        check_spans(explanation, text)


def test_no_more_words_than_asked_for_and_the_strongest_come_first(predictor):
    text = "the red cat sat on a blue owl"
    places = WordPlaces(text)
    for words in (1, 2, 3):
        for tag in predictor.explain(text, k=3, words=words):
            shown = [p for s in tag.spans_of() for p in places.places if s.start <= p[0] < s.end]
            assert 1 <= len(shown) <= words
    one, many = (predictor.explain(text, k=1, words=w)[0].spans_of() for w in (1, 8))
    assert any(span.start <= one[0].start and one[0].end <= span.end for span in many)


def test_labels_scores_and_experts_are_those_of_prediction(predictor):
    text = "the red cat"
    found = predictor.predict([text], k=3)
    full = predictor.predict([text], k=len(predictor.labels), per_expert=True)
    explanations = predictor.explain(text, k=3)
    assert len(explanations) == 3
    for place, explanation in enumerate(explanations):
        label = found.indices[0, place]
        assert explanation.id == predictor.labels.ids[label]
        assert explanation.score == pytest.approx(float(found.scores[0, place]))
        assert [part.name for part in explanation.experts] == predictor.expert_names
        for part in explanation.experts:
            own = full.experts[part.name]
            position = own.indices[0].tolist().index(label)
            assert part.score == pytest.approx(float(own.scores[0, position]), abs=1e-6)
        mean = sum(part.score for part in explanation.experts) / 2
        assert explanation.score == pytest.approx(mean, abs=1e-6)


def test_given_labels_are_explained_in_their_order_with_the_scores_of_prediction(calibrated):
    text = "the red cat"
    found = calibrated.predict([text], k=len(calibrated.labels))[0]
    wanted = [tag.id for tag in found][::-3]
    explained = calibrated.explain(text, labels=wanted)
    assert [tag.id for tag in explained] == wanted
    scores = {tag.id: tag.score for tag in found}
    assert [tag.score for tag in explained] == pytest.approx([scores[i] for i in wanted])
    assert calibrated.explain(text, labels=[]) == []
    with pytest.raises(ConfigError, match="does not know 1 of the labels given: whale"):
        calibrated.explain(text, labels=["cat", "whale"])


@pytest.fixture(scope="module")
def calibrated():
    """A model whose calibration depends on the rank of a label."""
    curve = CalibrationCurve((-20.0, 20.0), (-15.0, 25.0), rank_slope=1.0)
    return predictor_of(calibration=Calibration(curve=curve))


def test_an_empty_text_has_tags_but_no_words(predictor):
    explanations = predictor.explain("", k=2)
    assert len(explanations) == 2
    assert all(explanation.spans == [] for explanation in explanations)


def test_a_long_text_is_explained_up_to_where_it_was_read(predictor):
    text = "red cat " * 5000
    tag = predictor.explain(text, k=1, words=1000)[0]
    assert tag.spans
    assert max(span.end for span in tag.spans) < 200
    check_spans(tag, text)


def test_weights_that_are_not_finite_explain_nothing():
    broken = predictor_of("encoder.max_length=64")
    for parameter in broken.system.parameters():
        parameter.data.fill_(float("nan"))
    assert broken.explain("a red cat", k=2) == []


def test_a_k_that_cannot_be_met_is_refused(predictor):
    with pytest.raises(ConfigError, match="labels, not 99"):
        predictor.explain("the cat", k=99)


@pytest.mark.parametrize("name", SYSTEM_RECIPES.values())
@pytest.mark.parametrize("overrides", [(), ("encoder.freeze=true",)])
def test_every_system_can_be_asked(name, overrides):
    predictor = predictor_of(*overrides, name=name)
    predictor.predict(["the red cat"])  # what it caches must not get in the way
    explanations = predictor.explain("the red cat", k=2)
    assert len(explanations) == 2
    assert any(explanation.spans_of() for explanation in explanations)
    for explanation in explanations:
        assert [part.name for part in explanation.experts] == predictor.expert_names
        check_spans(explanation, "the red cat")


def test_every_expert_has_words_of_its_own():
    predictor = predictor_of('experts=["D-last", "A-1", "A-0", "T"]')
    tag = predictor.explain("the red cat sat", labels=["cat"])[0]
    for name in ("D-last", "A-1", "A-0"):
        assert tag.spans_of(name)
    assert [span.text for span in tag.spans_of("T")] == ["cat"]  # similar texts have it
    check_spans(tag, "the red cat sat")


def test_the_words_of_long_documents_are_those_of_every_chunk():
    predictor = predictor_of(
        "encoder.max_length=16", "encoder.overlap=4", "encoder.document_length=400"
    )
    text = " ".join(["the red cat sat"] * 12)
    tags = predictor.explain(text, k=3, words=48)
    assert max(span.end for tag in tags for span in tag.spans) > len(text) - 10
    for tag in tags:
        check_spans(tag, text)


def test_the_evidence_of_a_linear_network_is_exact():
    # The mean of layer 0 against a vector per label: each token adds its product, over T.
    predictor = predictor_of('experts=["D-0"]', "encoder.pooling=mean", "document.pooler=false")
    reading = TracedReading(predictor, "red cat dog " * 11)
    evidence = reading.evidence("D-0", reading.logits([3])["D-0"][0, 0], 3)
    (found,), (expert,) = reading.embeddings, predictor.system.experts
    embedded = found.layer
    products = (embedded[0] @ expert.weight[3] / embedded.shape[1]).tolist()
    expected = reading.places.weigh(zip(reading.offsets, products, strict=True))
    assert evidence == pytest.approx(expected, abs=1e-6)
    assert np.abs(evidence[:7]).min() > 0  # the words the encoder reads


def test_explanations_are_plain_values(predictor):
    explanation = predictor.explain("the red cat", k=1)[0]
    assert json.loads(json.dumps(explanation.to_dict())) == explanation.to_dict()
    assert set(explanation.to_dict()) == {"id", "name", "score", "experts", "spans"}


@pytest.mark.parametrize("overrides", [(), ("candidates.mode=shortlist",)])
def test_a_text_is_encoded_once(monkeypatch, overrides):
    predictor, sizes = predictor_of(*overrides), []
    forward = Encoder.forward
    monkeypatch.setattr(
        Encoder,
        "forward",
        lambda self, ids, *args, **options: (
            sizes.append(len(ids)) or forward(self, ids, *args, **options)
        ),
    )
    predictor.explain("the red cat " * 20, k=3)
    assert sizes == [1]
    predictor.explain("the red cat", k=3)  # a short one also without each of its words, at once
    assert sizes == [1, 1, 3]


@pytest.mark.parametrize("expert", ["D-last", "A-1"])
def test_words_of_a_short_text_weigh_what_the_log_odds_lose_without_them(predictor, expert):
    compared = 0
    for colour, animal in itertools.product(["red", "blue"], ["cat", "owl", "pig"]):
        text, rest = f"the {colour} {animal}", [f"{colour} {animal}", f"the {animal}"]
        (tag,) = predictor.explain(text, k=1)
        found = predictor.predict(
            [text, *rest, f"the {colour}"],
            k=1,
            candidates=np.full((4, 1), predictor.labels.index[tag.id]),
            per_expert=True,
            calibrated=False,
        )
        odds = log_odds(found.experts[expert].scores[:, 0])
        lost = np.maximum(odds[0] - odds[1:], 0)
        if not lost.any():
            continue
        shares = dict(zip(text.split(), (lost / lost.sum()).tolist(), strict=True))
        for span in tag.spans_of(expert):
            expected = sum(shares[word] for word in span.text.split())
            assert span.weight == pytest.approx(expected, abs=0.01)
            compared += 1
    assert compared


def test_predictions_of_other_threads_are_not_traced(predictor):
    with trace_embeddings() as traced, ThreadPoolExecutor(1) as other:
        other.submit(predictor.predict, ["the red cat"]).result()
    assert traced == []


# --- contributions of experts ----------------------------------------------------------------


def test_weighted_experts_contribute_their_weighted_distance_from_the_prior():
    combination = Combination({"D": 0.5, "S": 2.0}, bias=-1.0, frequency=0.3)
    global_, words = expert_parts({"D": -6.0, "S": 1.0}, combination, -4.0)
    assert (global_.log_odds, words.log_odds) == pytest.approx((-1.0, 10.0))
    assert (global_.share, words.share) == pytest.approx((-1 / 11, 10 / 11))
    assert words.score == pytest.approx(1 / (1 + np.exp(-1)))


@pytest.mark.parametrize("logits", [(3.0, -2.0), (8.0, 8.0), (-5.0, -4.0), (30.0, -30.0)])
def test_contributions_to_a_mean_of_probabilities_add_up(logits):
    parts = expert_parts(dict(zip("DA", logits, strict=True)), Combination(), -3.0)
    p = np.mean([1 / (1 + np.exp(-z)) for z in logits])
    total = sum(part.log_odds for part in parts)
    assert total == pytest.approx(float(log_odds(p)) + 3.0, rel=0.05)
    assert np.sign(parts[0].log_odds) == np.sign(logits[0] + 3.0)


def test_experts_at_the_prior_contribute_nothing():
    parts = expert_parts({"D": -3.0, "A": -3.0}, Combination(), -3.0)
    assert [(part.log_odds, part.share) for part in parts] == [(0.0, 0.0)] * 2


def test_the_prior_is_the_share_of_training_texts(predictor):
    label = int(np.argmax(predictor.labels.counts))
    share = (predictor.labels.counts[label] + 0.5) / (predictor.labels.n_documents + 1)
    assert prior_log_odds(predictor.labels, label) == pytest.approx(np.log(share / (1 - share)))


def test_the_whole_model_counts_experts_by_their_contribution():
    places = WordPlaces("red cat, sat")
    evidence = {"D": np.array([1.0, 1.0, -2.0]), "S": np.array([0.0, 0.0, 5.0])}
    parts = [ExpertPart("D", 0.5, 3.0, 0.75), ExpertPart("S", 0.5, 1.0, 0.25)]
    spans = tag_spans(places, evidence, parts, 5)
    assert [(s.text, s.expert, s.weight) for s in spans] == [
        ("red cat", ALL, pytest.approx(0.75)),
        ("sat", ALL, pytest.approx(0.25)),
        ("red cat", "D", pytest.approx(1.0)),
        ("sat", "S", pytest.approx(1.0)),
    ]


def test_experts_that_speak_against_a_tag_do_not_count_unless_all_do():
    places = WordPlaces("red, cat")
    evidence = {"D": np.array([1.0, 0.0]), "S": np.array([0.0, 1.0])}
    parts = [ExpertPart("D", 0.5, -3.0, -0.75), ExpertPart("S", 0.5, 1.0, 0.25)]
    assert [s.text for s in tag_spans(places, evidence, parts, 5) if s.expert == ALL] == ["cat"]
    against = [ExpertPart("D", 0.5, -3.0, -0.75), ExpertPart("S", 0.5, -1.0, -0.25)]
    spans = tag_spans(places, evidence, against, 5)
    assert [s.text for s in spans if s.expert == ALL] == ["red", "cat"]


# --- the report ------------------------------------------------------------------------------


def test_html_and_controls_in_labels_and_texts_stay_text(predictor):
    text = "<script>alert(1)</script> the \u202e red & cat"
    places = WordPlaces(text)
    spans = tag_spans(
        places,
        {"D": np.ones(len(places))},
        [ExpertPart("D", 0.5, 1.0, 1.0)],
        20,
    )
    tag = TagExplanation("<b>id</b>", "<img src=x onerror=y>", 0.5, [], spans)
    page = html_report(text, [tag])
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>id" not in page
    assert "\u202e" not in page
    assert r"\u202e" in page
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
