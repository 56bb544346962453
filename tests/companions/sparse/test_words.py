import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.companions.sparse.words import (
    MAX_CHARACTERS,
    first_lines,
    pieces_of,
    split_pieces,
    split_words,
    word_spans,
)


def words_of(text):
    batch = split_words([text])
    return [batch.words[code] for code in batch.codes]


def test_words_are_letters_digits_and_marks():
    assert words_of("Council Regulation (EC) No 1234/97 — Naïve café’s") == [
        *("council", "regulation", "ec", "no", "1234", "97", "naïve", "café", "s")
    ]


def test_a_batch_keeps_texts_apart():
    batch = split_words(["a B", "", "...", "b"])
    assert batch.lengths.tolist() == [2, 0, 0, 1]
    assert batch.words == ["a", "b"]
    assert batch.codes.tolist() == [0, 1, 1]


def test_nothing_at_all():
    batch = split_words([])
    assert batch.lengths.tolist() == []
    assert batch.codes.tolist() == []


def test_overlong_pieces_are_no_words():
    assert words_of("a " + "x" * (MAX_CHARACTERS + 1) + " b") == ["a", "b"]


def written(batch):
    """The words of all texts, in their order."""
    return [batch.words[code] for code in batch.codes]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=4))
def test_few_texts_are_cut_as_many(texts):
    """With nine more all of them go through Arrow; what those add is left out again."""
    few, many = split_words(texts), split_words([*texts, *["q"] * 9])
    assert few.lengths.tolist() == many.lengths[:-9].tolist()
    assert {*few.words, "q"} == set(many.words)
    assert written(few) == written(many)[: len(few.codes)]
    assert (few.lengths.dtype, few.codes.dtype) == (many.lengths.dtype, many.codes.dtype)


def test_every_character_counts_alike_in_few_texts_and_in_many():
    characters = [chr(n) for n in range(0x110000) if not 0xD800 <= n < 0xE000]
    blocks = [" ".join(characters[i : i + 4096]) for i in range(0, len(characters), 4096)]
    many = split_words(blocks)
    few = [split_words([block]) for block in blocks]
    assert many.lengths.tolist() == [int(batch.lengths[0]) for batch in few]
    words = [batch.words[code] for batch in few for code in batch.codes]
    assert words == [many.words[code] for code in many.codes]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_spans_are_where_the_words_are(text):
    spans = word_spans(text)
    assert [word for word, _, _ in spans] == words_of(text)
    end = 0
    for word, start, stop in spans:
        assert end <= start < stop <= len(text)
        assert words_of(text[start:stop]) == [word]
        end = stop


def test_first_lines():
    texts = ["A title\nand text", "no break", "", "\nx", f"{'é' * 500}\nx"]
    expected = ["A title", "no break", "", "", "é" * 400]
    assert first_lines(texts) == expected
    assert first_lines(texts * 10).to_pylist() == expected * 10


def test_pieces_of_a_word():
    assert pieces_of("heart") == [" hea", "hear", "eart", "art "]
    assert pieces_of("at") == [" at "]
    assert pieces_of("a") == [" a "]


@pytest.mark.parametrize("texts", [["The heart", "", "the é art the"], [], [""], ["..."]])
def test_pieces_of_texts_like_one_by_one(texts):
    batch = split_pieces(texts)
    ends = np.cumsum(batch.lengths)
    bounds = zip(ends - batch.lengths, ends, strict=True)
    found = [[batch.words[code] for code in batch.codes[a:b]] for a, b in bounds]
    assert found == [[p for word, *_ in word_spans(t) for p in pieces_of(word)] for t in texts]
    assert len(set(batch.words)) == len(batch.words)
