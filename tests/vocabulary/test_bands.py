import pytest

from glocal.errors import ConfigError
from glocal.vocabulary.bands import Band, Bands


def test_default_is_that_of_me_xml():
    bands = Bands()
    assert bands.names == ["few", "medium", "many"]
    assert bands.assign([0, 1, 20, 21, 100, 101, 10**6]).tolist() == [-1, 0, 0, 1, 1, 2, 2]


def test_parse_and_print():
    text = "few=1-20,medium=21-100,many=101-"
    assert Bands.parse(text) == Bands()
    assert str(Bands()) == text
    assert Bands.parse(" all = 1 - ").bands == (Band("all", 1, None),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("few", "is malformed"),
        ("", "is malformed"),
        ("few=1-20,many=20-", "overlap"),
        ("few=1-20,many=22-", "gap"),
        ("many=21-,few=1-20", "overlap or are out of order"),
        ("few=2-20,many=21-", "expected 1"),
        ("few=1-20", "must be open"),
        ("few=1-20,few=21-", "same name"),
        ("none=1-0,all=1-", "is empty"),
    ],
)
def test_bands_that_do_not_fit(text, message):
    with pytest.raises(ConfigError, match=message):
        Bands.parse(text)


def test_no_bands():
    with pytest.raises(ConfigError, match="no bands"):
        Bands(())
