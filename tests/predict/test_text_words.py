"""The words of a text: any script, exact places, phrases, weights of other parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.predict.text_words import WordPlaces


def words_of(text):
    return [text[start:stop] for start, stop in WordPlaces(text).places]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The red cat, and 3 owls!", ["The", "red", "cat", "and", "3", "owls"]),
        ("e\u0301t\u00e9 na\u00efve", ["e\u0301t\u00e9", "na\u00efve"]),
        ("don't co-op", ["don", "t", "co", "op"]),
        ("中文 kanji日本", ["中", "文", "kanji", "日", "本"]),
        ("か\u3099く", ["か\u3099", "く"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("السلام عليكم", ["السلام", "عليكم"]),
        (
            "cat 🐈\u200d⬛ 👩🏽\u200d🚀, 🇫🇮🇸🇪 €5",
            ["cat", "🐈\u200d⬛", "👩🏽\u200d🚀", "🇫🇮", "🇸🇪", "€", "5"],
        ),
        ("1\ufe0f\u20e3 ❤\ufe0f", ["1\ufe0f\u20e3", "❤\ufe0f"]),
        ("… — !?\n\t", []),
        ("", []),
    ],
)
def test_words_of_any_script(text, words):
    assert words_of(text) == words


@given(st.text())
def test_words_are_in_order_and_never_overlap(text):
    places = WordPlaces(text).places
    assert all(start < stop for start, stop in places)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(places))


def test_neighbouring_words_become_phrases():
    text = "red  cat, co-op don’t\nsat"
    places = WordPlaces(text)
    found = places.phrases(range(len(places)), np.ones(7))
    assert [text[start:stop] for (start, stop), _ in found] == ["red  cat", "co-op don’t", "sat"]
    assert [members for _, members in found] == [[0, 1], [2, 3, 4, 5], [6]]
    few = places.phrases([1, 0, 4], np.ones(7))
    assert [text[a:b] for (a, b), _ in few] == ["red  cat", "don"]


def test_a_weak_word_does_not_join_a_strong_one():
    places = WordPlaces("the red cat")
    found = places.phrases([0, 1, 2], np.array([0.1, 0.9, 0.4]))
    assert [members for _, members in found] == [[0], [1, 2]]


def test_parts_share_their_weight_among_the_words_they_cover():
    places = WordPlaces("red cat, sat")
    parts = [((0, 3), 1.0), ((0, 7), 6.0), ((7, 8), 9.0), ((4, 5), 0.5), ((5, 7), -0.25)]
    assert places.weigh(parts).tolist() == pytest.approx([4.0, 3.25, 0.0])
    assert places.weigh([]).tolist() == [0.0, 0.0, 0.0]


@given(st.text(), st.data())
def test_a_part_that_covers_a_word_keeps_its_weight(text, data):
    places = WordPlaces(text)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    covers = start < stop and any(a < stop and start < b for a, b in places.places)
    total = places.weigh([((start, stop), 2.0)]).sum()
    assert total == pytest.approx(2.0 if covers else 0.0)


def test_words_are_left_out_of_the_text():
    places = WordPlaces("a red cat, sat")
    assert places.without([1, 3]) == "a  cat, "
    assert places.without([]) == "a red cat, sat"
