"""Batches: each document once an epoch, like lengths together, the same for the same seed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from glocal.data.batches import epoch_batches, prediction_batches, shard
from tests.collating import collate

lengths_of = st.lists(st.integers(1, 50), min_size=1, max_size=200).map(np.array)


@settings(deadline=None, max_examples=60)
@given(lengths_of, st.integers(1, 20), st.integers(0, 9), st.integers(0, 3), st.integers(1, 6))
def test_every_document_comes_once_an_epoch_and_fills_all_parts(
    lengths, batch_size, seed, epoch, parts
):
    options = {"seed": seed, "epoch": epoch, "parts": min(parts, batch_size)}
    batches = epoch_batches(lengths, batch_size, **options)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    if len(lengths) >= options["parts"]:
        assert min(len(batch) for batch in batches) >= options["parts"]
    dealt = [
        [shard(batch, part=part, parts=options["parts"]) for part in range(options["parts"])]
        for batch in batches
    ]
    for batch, pieces in zip(batches, dealt, strict=True):
        assert sorted(np.concatenate(pieces)) == sorted(batch)
        sizes = [len(piece) for piece in pieces]
        assert max(sizes) - min(sizes) <= 1


def test_the_same_seed_and_epoch_give_the_same_batches_and_others_others():
    lengths = np.random.default_rng(0).integers(1, 90, 300)

    def flat(**options):
        return np.concatenate(epoch_batches(lengths, 16, **options)).tolist()

    assert flat(seed=1, epoch=2) == flat(seed=1, epoch=2)
    assert flat(seed=1, epoch=2) != flat(seed=1, epoch=3)
    assert flat(seed=1, epoch=2) != flat(seed=2, epoch=2)


def test_documents_of_like_length_are_together_and_batches_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 500, 1024)
    batches = epoch_batches(lengths, 16, seed=0, epoch=0)
    padding = sum(len(b) * lengths[b].max() - lengths[b].sum() for b in batches)
    assert padding < 0.05 * lengths.sum()
    first = [int(lengths[b].min()) for b in batches]
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)


def test_a_small_last_batch_joins_another():
    sizes = [len(b) for b in epoch_batches(np.ones(33, int), 16, seed=0, epoch=0, parts=2)]
    assert sorted(sizes) == [16, 17]
    sizes = [len(b) for b in epoch_batches(np.ones(33, int), 16, seed=0, epoch=0)]
    assert sorted(sizes) == [1, 16, 16]


@settings(deadline=None, max_examples=40)
@given(lengths_of, st.integers(1, 20))
def test_prediction_starts_with_the_longest_and_leaves_nothing_out(lengths, batch_size):
    batches = list(prediction_batches(lengths, batch_size))
    order = np.concatenate(batches)
    assert sorted(order) == list(range(len(lengths)))
    assert (np.diff(lengths[order]) <= 0).all()
    assert max(map(len, batches)) <= batch_size


def test_no_documents_make_no_batches():
    assert list(prediction_batches(np.zeros(0, int), 4)) == []


TOKENS = [np.array([2, 7, 3]), np.array([2, 3]), np.array([2, 5, 6, 7, 8, 3])]


@pytest.mark.parametrize("left", [False, True])
def test_padding_is_on_the_side_asked_for(left):
    batch = collate(TOKENS, np.array([2, 1]), pad_id=9, left=left)
    assert batch.padded
    assert batch.input_ids.shape == (2, 8)  # a multiple of 8
    short = [9] * 6 + [2, 3] if left else [2, 3] + [9] * 6
    assert batch.input_ids[1].tolist() == short
    assert batch.attention_mask[1].tolist() == [token != 9 for token in short]
    assert batch.input_ids[0][batch.attention_mask[0]].tolist() == [2, 5, 6, 7, 8, 3]
    assert batch.denominator == len(batch) == 2
    assert batch.positions.tolist() == [2, 1]


def test_equal_lengths_need_no_padding():
    batch = collate(TOKENS, np.array([0]), pad_id=9, left=False)
    assert not batch.padded
    assert batch.input_ids.tolist() == [[2, 7, 3]]


def test_gold_labels_outside_the_label_space_are_left_out():
    gold = csr_matrix(np.array([[1, 0, 1, 1], [0, 0, 0, 1], [0, 1, 0, 0]]))
    batch = collate(
        TOKENS, np.arange(3), pad_id=0, left=False, gold=gold, n_labels=3, denominator=6, multiple=4
    )
    assert batch.gold.tolist() == [[0, 2, -1, -1], [-1] * 4, [1, -1, -1, -1]]
    assert batch.denominator == 6.0
    assert collate(TOKENS, np.arange(3), pad_id=0, left=False).gold.tolist() == [[-1]] * 3


def test_a_batch_can_be_copied_and_taken_over():
    batch = collate(TOKENS, np.array([0, 1]), pad_id=0, left=False)
    other = collate(TOKENS, np.array([1, 0]), pad_id=0, left=False)
    copy = batch.clone()
    copy.copy_(other)
    assert copy.input_ids.equal(other.input_ids)
    assert not batch.input_ids.equal(other.input_ids)
    moved = batch.to(torch.device("cpu"))
    assert moved.input_ids.equal(batch.input_ids)
    assert len(batch.tensors()) == 3


def test_rows_of_other_arrays_come_along(tmp_path):
    scope = np.memmap(tmp_path / "scope", dtype=np.int32, mode="w+", shape=(3, 2))
    scope[:] = [[4, -1], [5, 6], [7, 8]]
    weights = np.arange(3, dtype=np.float32)
    extra = {"scope": scope, "weight": weights}
    batch = collate(TOKENS, np.array([2, 0]), pad_id=0, left=False, companion_features=extra)
    other = collate(TOKENS, np.array([2, 1]), pad_id=0, left=False, companion_features=extra)
    assert batch.companion_features["scope"].tolist() == [[7, 8], [4, -1]]
    assert batch.companion_features["weight"].tolist() == [2.0, 0.0]
    assert len(batch.tensors()) == 5
    copy = batch.clone()
    copy.copy_(other)
    assert copy.companion_features["scope"].tolist() == [[7, 8], [5, 6]]
    assert batch.companion_features["scope"].tolist() == [[7, 8], [4, -1]]
    moved = copy.to(torch.device("cpu"))
    assert list(moved.companion_features) == ["scope", "weight"]
    assert moved.companion_features["weight"].tolist() == [2.0, 1.0]
