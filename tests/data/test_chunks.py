"""Long documents in chunks: every token once, each chunk full, the first as if nothing followed."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from glocal.data.chunks import Chunking, Continuation, continuation_arrays
from tests.collating import collate

CLS, SEP = 101, 102


def document(length):
    """[CLS], ascending numbers, [SEP]."""
    return np.array([CLS, *range(1000, 1000 + length - 2), SEP])


def continuation_of(documents, chunking, **options):
    found = continuation_arrays(documents, chunking, **options)
    return found and Continuation(*found)


chunkings = st.builds(
    Chunking,
    window=st.integers(3, 20),
    overlap=st.integers(0, 12),
    before=st.integers(0, 1),
    after=st.integers(0, 2),
)


@settings(deadline=None, max_examples=200)
@given(chunkings, st.lists(st.integers(2, 90), min_size=1, max_size=5), st.integers(1, 8))
def test_every_token_is_read_once_and_chunks_overlap_as_asked(chunking, lengths, multiple):
    assume(chunking.step > 0)
    before, after = chunking.before, chunking.after
    documents = [np.arange(n + before + after) for n in lengths]
    continuation = continuation_of(documents, chunking, pad_id=-7, multiple=multiple)
    assert (continuation is None) == all(len(d) <= chunking.window for d in documents)
    for row, tokens in enumerate(documents):
        first, chunks = chunking.first(tokens), list(chunking.beyond(tokens))
        end, read = len(tokens) - after, list(first)
        stop = before + chunking.body
        assert len(first) == min(len(tokens), chunking.window)
        for chunk, new in chunks:
            assert len(chunk) == chunking.window
            assert chunk[:before].tolist() == tokens[:before].tolist()
            assert chunk[chunking.window - after :].tolist() == tokens[end:].tolist()
            body = chunk[before : chunking.window - after]
            assert body.tolist() == list(range(stop + new - chunking.body, stop + new))
            assert 1 <= new <= chunking.body - chunking.overlap
            read += body[-new:].tolist()
            stop += new
        assert sorted(read) == list(range(len(tokens)))
        assert read == chunking.order(len(tokens)).tolist()
        if continuation is not None:
            places, numbers = continuation.places[row], continuation.chunks[row]
            found = continuation.input_ids.flatten()[places[places >= 0]]
            assert found.tolist() == read[chunking.window :]
            kept = continuation.input_ids[numbers[numbers >= 0]].tolist()
            assert kept == [chunk.tolist() for chunk, _ in chunks]


def test_chunks_are_spread_evenly():
    chunking = Chunking(window=12, overlap=2, before=1, after=1)
    assert [new for _, new in chunking.beyond(document(29))] == [5, 6, 6]
    assert [new for _, new in chunking.beyond(document(13))] == [1]
    assert list(chunking.beyond(document(12))) == []


def test_the_first_chunk_is_the_document_cut_at_the_window():
    chunking = Chunking(window=5, overlap=0, before=1, after=1)
    assert chunking.first(document(9)).tolist() == [CLS, 1000, 1001, 1002, SEP]
    assert chunking.first(document(4)).tolist() == [CLS, 1000, 1001, SEP]


def test_shapes_are_few_where_they_are_to_be_recorded():
    chunking = Chunking(window=12, overlap=2, before=1, after=1)
    shapes = set()
    for extra in range(1, 33):
        documents = [document(12 + extra), document(12), *[document(12 + max(1, extra - 3))] * 6]
        continuation = continuation_of(documents, chunking, pad_id=0, multiple=32)
        assert continuation.input_ids.shape[0] % 8 == 0
        shapes.add(tuple(tuple(t.shape) for t in continuation.tensors()))
    assert len(shapes) <= 4
    assert {places for _, places, _ in shapes} == {(8, 32)}


def test_one_document_has_no_padding():
    chunking = Chunking(window=12, overlap=2, before=1, after=1)
    continuation = continuation_of([document(29)], chunking, pad_id=0, multiple=64)
    assert continuation.input_ids.shape == (3, 12)
    assert continuation.places.shape == (1, 17)
    assert (continuation.places >= 0).all()


@pytest.mark.parametrize("left", [False, True])
def test_a_batch_carries_the_continuation_along(left):
    chunking = Chunking(window=6, overlap=1, before=1, after=1)
    documents = [document(15), document(4)]
    options = {"pad_id": 9, "left": left, "chunking": chunking, "multiple": 1}
    batch = collate(documents, np.array([1, 0]), **options)
    assert batch.input_ids.shape == (2, 6)
    assert batch.input_ids[1].tolist() == [CLS, 1000, 1001, 1002, 1003, SEP]
    assert (batch.continuation.places[0] == -1).all()
    assert len(batch.tensors()) == 6
    swapped = collate(documents, np.array([0, 1]), **options)
    copy = batch.clone()
    copy.copy_(swapped)
    assert copy.continuation.places.equal(swapped.continuation.places)
    assert not batch.continuation.places.equal(swapped.continuation.places)


def test_a_batch_of_short_documents_has_no_continuation():
    chunking = Chunking(window=6, overlap=1, before=1, after=1)
    batch = collate([document(6)], np.array([0]), pad_id=0, left=False, chunking=chunking)
    assert batch.continuation is None
    assert len(batch.tensors()) == 3
