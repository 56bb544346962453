import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.sparse.words import (
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


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=40), max_size=4))
def test_few_ascii_texts_are_cut_as_any_others(texts):
    """A text beyond ASCII sends all of them through Arrow: what it adds is left out again."""
    few, any_ = split_words(texts), split_words([*texts, "é"])
    assert few.lengths.tolist() == any_.lengths[:-1].tolist()
    assert few.words == any_.words[:-1]
    assert few.codes.tolist() == any_.codes[:-1].tolist()
    assert (few.lengths.dtype, few.codes.dtype) == (any_.lengths.dtype, any_.codes.dtype)


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
    assert first_lines(["A title\nand text", "no break", "", "\nx"]).to_pylist() == [
        *("A title", "no break", "", "")
    ]


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
