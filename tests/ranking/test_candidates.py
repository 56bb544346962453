import numpy as np
import torch

from glocal.data.batches import Batch
from glocal.label_slice import LabelSlice
from glocal.losses.bce import bce_candidates
from glocal.ranking.candidates import Candidates, cluster_candidates, draw_candidates


def batch_of(gold):
    size = len(gold)
    ids, mask = torch.zeros(size, 1, dtype=torch.long), torch.ones(size, 1, dtype=torch.bool)
    return Batch(ids, mask, torch.tensor(gold), np.arange(size), float(size), padded=False)


def test_gold_and_hard_labels_are_never_drawn_again():
    batch = batch_of([[0, 1], [2, -1]])
    hard = torch.tensor([[2, 3], [3, -1]])
    found = draw_candidates(batch, hard, n_random=200, n_labels=8, seed=(0, 0))
    for row, known in enumerate([{0, 1, 2, 3}, {2, 3}]):
        drawn = found.labels[row, 4:][found.weights[row, 4:] > 0].tolist()
        assert drawn
        assert not known & set(drawn)
    assert found.targets.sum() == 3


def test_the_sampled_loss_is_an_unbiased_estimate_of_the_full_one():
    torch.manual_seed(0)
    n_labels = 60
    logits = torch.randn(2, n_labels)
    dense = torch.zeros(2, n_labels)
    dense[0, [3, 7]] = dense[1, 50] = 1
    full = bce_candidates(logits, dense, torch.ones_like(dense))
    hard = torch.tensor([[1, 2], [0, -1]])
    batch = batch_of([[3, 7], [50, -1]])
    estimates = []
    for step in range(3000):
        found = draw_candidates(batch, hard, n_random=10, n_labels=n_labels, seed=(0, step))
        z = logits.gather(1, found.labels)
        estimates.append(float(bce_candidates(z, found.targets, found.weights)))
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - float(full)) < 4 * error


def test_draws_depend_on_seed_step_and_position_alone():
    asked = {"n_random": 4, "n_labels": 1000}
    found = draw_candidates(batch_of([[-1]] * 6), None, seed=(3, 7), **asked)
    assert found.labels[[0, 5], 1:].tolist() == [[1, 487, 820, 382], [600, 188, 422, 880]]
    other = draw_candidates(batch_of([[-1]] * 6), None, seed=(3, 8), **asked)
    assert not torch.equal(found.labels, other.labels)


def test_drawn_labels_stand_for_all_that_are_not_known():
    batch = batch_of([[0, 1], [2, -1]])
    hard = torch.tensor([[2, 3], [3, -1]])
    found = draw_candidates(batch, hard, n_random=20, n_labels=8, seed=(0, 0))
    assert found.labels.shape == found.targets.shape == found.weights.shape == (2, 24)
    assert found.weights[:, :4].tolist() == [[1, 1, 1, 1], [1, 0, 1, 0]]
    assert found.targets[:, :4].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]
    assert not found.targets[:, 4:].any()
    np.testing.assert_allclose(found.weights[:, 4:].sum(1), [4, 6], rtol=1e-6)


def test_one_draw_stands_for_all_labels_that_are_not_known():
    found = draw_candidates(batch_of([[0]] * 9), None, n_random=1, n_labels=8, seed=(0, 0))
    drawn = found.labels[:, 1] > 0
    assert drawn.any()
    assert found.weights[:, 1].tolist() == [7.0 * new for new in drawn.tolist()]


def test_draws_that_are_all_known_have_no_weight():
    found = draw_candidates(batch_of([[0]]), None, n_random=3, n_labels=1, seed=(0, 0))
    assert found.weights.tolist() == [[1, 0, 0, 0]]


class LaterHalf(LabelSlice):
    """Labels 4 to 7 of eight, as one of two processes has them."""

    sharded = True

    def bounds(self, n_labels):
        return 4, n_labels

    def local(self, labels, n_labels):
        return torch.where(labels >= 4, labels - 4, -1)


def test_a_slice_keeps_its_own_candidates_in_their_order():
    candidates = Candidates(
        torch.tensor([[0, 4, 5, 7], [4, 1, 2, 3]]),
        torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]),
        torch.tensor([[1.0, 0.5, 0.0, 3.0], [0.25, 1.0, 1.0, 1.0]]),
    )
    own = candidates.within(LaterHalf(), 8)
    assert own.labels.tolist() == [[0, 3], [0, 0]]  # label 5 has no weight
    assert own.weights.tolist() == [[0.5, 3.0], [0.25, 0.0]]
    assert own.targets[:, 0].tolist() == [1.0, 0.0]
    assert candidates.within(LabelSlice(), 8) is candidates


def test_labels_of_clusters_and_the_gold_labels_they_miss():
    gold = torch.tensor([[0, 5, -1], [3, -1, -1]])
    picked = torch.tensor([[5, 2, -1], [0, 1, 7]])
    found = cluster_candidates(gold, picked, n_labels=8)
    assert found.labels.tolist() == [[5, 2, 0, 0, 5, 0], [0, 1, 7, 3, 0, 0]]
    assert found.targets.tolist() == [[1, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0]]
    assert found.weights.tolist() == [[1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 0, 0]]


def test_gold_labels_that_clusters_miss_may_be_the_first_label():
    found = cluster_candidates(torch.tensor([[0, -1]]), torch.tensor([[2, -1]]), n_labels=4)
    assert found.labels.tolist() == [[2, 0, 0, 0]]
    assert found.targets.tolist() == [[0, 0, 1, 0]]
    assert found.weights.tolist() == [[1, 0, 1, 0]]
    assert found.targets.dtype == found.weights.dtype == torch.float32
    picked = cluster_candidates(torch.tensor([[0]]), torch.tensor([[2, 0]]), n_labels=4)
    assert picked.targets.tolist() == [[0, 1, 0]]
    drawn = draw_candidates(batch_of([[3, -1]]), None, n_random=2, n_labels=4, seed=(0, 0))
    assert (drawn.labels >= 0).all()


def test_a_slice_computes_no_more_places_than_it_has_candidates():
    candidates = Candidates(torch.tensor([[4, 1, 2]]), torch.ones(1, 3), torch.ones(1, 3))
    assert candidates.within(LaterHalf(), 8).labels.tolist() == [[0]]
    none = Candidates(torch.tensor([[0, 1, 2]]), torch.ones(1, 3), torch.ones(1, 3))
    assert none.within(LaterHalf(), 8).weights.tolist() == [[0]]


def test_draws_are_hashes_of_seed_document_and_place():
    n_labels, mask = 2**52, 2**64 - 1
    (key,) = np.random.SeedSequence((5, 9)).generate_state(1, np.uint64).tolist()

    def label(document, place):  # SplitMix64
        state = (key + 0x9E3779B97F4A7C15 * (document * 3 + place)) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        return ((state ^ (state >> 31)) >> 11) // 2

    found = draw_candidates(batch_of([[-1]] * 4), None, n_random=3, n_labels=n_labels, seed=(5, 9))
    expected = [[label(document, place) for place in range(3)] for document in range(4)]
    assert found.labels[:, 1:].tolist() == expected
