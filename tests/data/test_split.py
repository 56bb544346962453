from collections import Counter

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from glocal.data.corpus import Corpus
from glocal.data.split import split_corpus
from glocal.errors import ConfigError, DataError

ROWS = st.lists(
    st.tuples(
        st.sampled_from([f"text {i}" for i in range(12)]),
        st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True),
    ),
    min_size=4,
    max_size=40,
)


def labels_in(corpus):
    return {label for labels in corpus.labels() for label in labels}


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 3), held_out=st.sampled_from([(0.3,), (0.2, 0.2)]))
def test_properties_of_a_split(rows, seed, held_out):
    corpus = Corpus.from_texts([text for text, _ in rows], [labels for _, labels in rows])
    fractions = (1 - sum(held_out), *held_out)
    try:
        parts = split_corpus(corpus, fractions=fractions, seed=seed)
    except DataError:  # labels too rare to hold anything out; a test of its own below
        reject()
    ids = [id_ for part in parts for id_ in part.ids]
    assert sorted(ids) == sorted(corpus.ids)
    assert labels_in(parts[0]) == labels_in(corpus)
    places = Counter(text for part in parts for text in set(part.texts()))
    assert max(places.values()) == 1
    for part, fraction in zip(parts[1:], fractions[1:], strict=True):
        assert len(part) <= round(fraction * len(corpus))
    again = split_corpus(corpus, fractions=fractions, seed=seed)
    assert [part.ids for part in parts] == [part.ids for part in again]


def test_sizes_are_exact_when_labels_are_frequent():
    corpus = Corpus.from_texts([f"text {i}" for i in range(1000)], [["a", "b"]] * 1000)
    parts = split_corpus(corpus, fractions=(0.8, 0.1, 0.1), seed=1)
    assert [len(part) for part in parts] == [800, 100, 100]
    assert all(part.ids == sorted(part.ids, key=int) for part in parts)
    other = split_corpus(corpus, fractions=(0.8, 0.1, 0.1), seed=2)
    assert parts[2].ids != other[2].ids


def test_documents_without_labels_can_be_held_out():
    corpus = Corpus.from_texts([f"text {i}" for i in range(10)])
    assert [len(part) for part in split_corpus(corpus, fractions=(0.7, 0.3), seed=0)] == [7, 3]


def test_labels_too_rare_to_hold_out():
    corpus = Corpus.from_texts([f"text {i}" for i in range(10)], [[f"l{i}"] for i in range(10)])
    with pytest.raises(DataError, match=r"part 2 of the split .* would be empty"):
        split_corpus(corpus, fractions=(0.8, 0.2), seed=0)


def test_wrong_fractions_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        split_corpus(Corpus.from_texts(["a"]), fractions=(-0.5,), seed=0)
    assert len(caught.value.problems) == 3
