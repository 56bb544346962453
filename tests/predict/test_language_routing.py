from pathlib import Path

import pytest

from glocal.data.corpus import Document
from glocal.errors import ConfigError, DataError
from glocal.predict.bulk import predict_rows
from glocal.predict.language_routing import (
    LanguageRoutes,
    detect_language,
    known_words,
    parse_routes,
)
from tests.predict.test_bulk import CountingPredictor

GERMAN = "Die Fischerei in der Nordsee wird durch eine Verordnung geregelt"
ENGLISH = "The fishery in the North Sea is governed by a regulation"
FINNISH = "Kalastus on tärkeä elinkeino Suomen rannikolla"


@pytest.mark.parametrize(
    ("text", "expected"), [(GERMAN, "de"), (ENGLISH, "en"), (FINNISH, "fi"), ("4711 xyzzy", None)]
)
def test_the_language_with_most_known_words(text, expected):
    assert detect_language(text, ["en", "de", "fi"]) == expected


def test_a_language_without_a_model_is_none():
    assert detect_language(FINNISH, ["en", "de"]) is None
    assert detect_language(ENGLISH, ["de"]) is None
    assert detect_language("", ["en"]) is None


def test_shares_of_known_words():
    shares = known_words("die Verordnungen xyzzyx qqwwee", ["de"])
    assert 0 < shares["de"] < 1
    assert shares["de"] + shares["unk"] == pytest.approx(1)
    assert known_words(GERMAN, ["de"])["de"] == 1


class Named(CountingPredictor):
    def __init__(self, threshold):
        super().__init__()
        self.decision = self.decision.__class__(threshold=threshold)


def test_each_text_is_tagged_by_its_own_model_in_the_order_of_the_texts():
    other, german = Named(0.0), Named(0.8)
    routes = LanguageRoutes(other, {"de": german, "en": other})
    bad = DataError("no text", document_id="3")
    rows = list(
        predict_rows(
            routes,
            [Document("1", GERMAN), Document("2", ENGLISH), bad, Document("4", GERMAN)],
        )
    )
    assert [row["id"] for row in rows] == ["1", "2", "3", "4"]
    # Each model's own threshold applies: 0.8 leaves one label of three.
    assert [len(row["labels"]) for row in rows] == [1, 3, 0, 1]
    assert rows[2]["error"] == "no text"
    assert max(german.chunks) == 2
    assert max(other.chunks) == 1


def test_all_problems_of_routes_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_routes(["de", "klingon=model", "en=a", "en=b"])
    message = str(caught.value)
    assert "not 'de'" in message
    assert "no language 'klingon'" in message
    assert "two models for the language en" in message
    assert parse_routes(["de=a", "en=b=c"]) == {"de": Path("a"), "en": Path("b=c")}


def test_too_many_languages():
    given = [f"{language}=m" for language in ("de", "en", "fi", "fr", "it", "es")]
    with pytest.raises(ConfigError, match="there are 6 languages; at most 5"):
        parse_routes(given)
