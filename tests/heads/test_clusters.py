import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.errors import ConfigError
from glocal.heads.frequency_clusters import cluster_priors, label_clusters, partition_sizes


def test_labels_are_cut_by_falling_training_frequency():
    counts = np.array([5, 0, 9, 5, 1, 0, 30, 2, 7, 1])
    clusters = label_clusters(counts, (0.3, 0.2, 0.5))
    assert clusters.order.tolist() == [6, 2, 8, 0, 3, 7, 4, 9, 1, 5]  # ties by id, unseen last
    assert clusters.bounds == (0, 3, 5, 10)
    assert clusters.sizes == [3, 2, 5]
    assert clusters.ranks[clusters.order].tolist() == list(range(10))
    assert clusters.cluster_of.tolist() == [1, 2, 0, 1, 2, 2, 0, 2, 0, 2]


def test_counts_of_an_unsigned_type_sort_alike():
    counts = np.array([1, 3, 2])
    assert label_clusters(counts.astype(np.uint32), (1.0,)).order.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("n_labels", "partition", "sizes"),
    [
        (7, (1.0,), [7]),
        (10, (0.5, 0.5), [5, 5]),
        (3, (0.98, 0.01, 0.01), [1, 1, 1]),
        (100, (0.001, 0.998, 0.001), [1, 98, 1]),
        (670_091, (0.25, 0.25, 0.25, 0.25), [167_523, 167_523, 167_522, 167_523]),
        (9, (0.33, 0.33, 0.34), [3, 3, 3]),
    ],
)
def test_sizes_follow_the_shares_and_none_is_empty(n_labels, partition, sizes):
    assert partition_sizes(n_labels, partition) == sizes


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=6), st.integers(0, 500))
def test_sizes_are_positive_and_cover_the_labels(shares, more):
    shares = np.array(shares) / np.sum(shares)
    n_labels = len(shares) + more
    sizes = partition_sizes(n_labels, shares.tolist())
    assert sum(sizes) == n_labels
    assert min(sizes) >= 1


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ((0.5, 0.4), r"\[0.5, 0.4\] sums to 0.9"),
        ((0.7, 0.7), "must sum to 1"),
        ((1.5, -0.5), "above 0"),
        ((1.0, 0.0), "above 0"),
        ((float("nan"), 1.0), "above 0"),
        ((), "above 0"),
        ((0.25,) * 4, "makes 4 clusters, but there are only 3 labels"),
    ],
)
def test_wrong_partitions_are_refused(partition, message):
    with pytest.raises(ConfigError, match=message):
        label_clusters(np.array([3, 2, 1]), partition)


def test_visited_labels_are_the_head_and_the_tails_met():
    clusters = label_clusters(np.arange(10, 0, -1), (0.3, 0.2, 0.5))
    assert clusters.n_visited(np.array([], dtype=int)) == 3
    assert clusters.n_visited(np.array([0, 1])) == 3
    assert clusters.n_visited(np.array([0, 4, 3])) == 5
    assert clusters.n_visited(np.array([9, 4])) == 10


def test_priors_multiply_to_the_frequency_of_each_label():
    counts = np.array([40, 9, 4, 0])
    clusters = label_clusters(counts, (0.5, 0.5))
    priors = cluster_priors(clusters, counts, 100)
    gate = 1 / (1 + np.exp(-priors.gates[0]))
    labels = 1 / (1 + np.exp(-priors.labels))
    expected = (counts + 0.5) / 101
    np.testing.assert_allclose(labels[:2], expected[:2], rtol=1e-9)
    np.testing.assert_allclose(labels[2:] * gate, expected[2:], rtol=1e-9)
    assert gate == pytest.approx(1 - (1 - expected[2]) * (1 - expected[3]))


def test_priors_are_finite_for_a_label_on_every_document_and_one_on_none():
    counts = np.array([10, 10, 0])
    priors = cluster_priors(label_clusters(counts, (0.3, 0.3, 0.4)), counts, 10)
    assert np.isfinite(priors.gates).all()
    assert np.isfinite(priors.labels).all()


def test_numbers_of_labels_and_tails():
    clusters = label_clusters(np.arange(10, 0, -1), (0.3, 0.2, 0.5))
    assert (clusters.n_labels, clusters.n_tails) == (10, 2)
    assert label_clusters(np.arange(3), (1.0,)).n_tails == 0


def test_a_label_on_every_document_has_a_finite_prior_in_a_tail_too():
    counts = np.array([100, 100, 100])
    priors = cluster_priors(label_clusters(counts, (0.3, 0.7)), counts, 100)
    expected = np.log((100.5 / 101) / (0.5 / 101))
    assert priors.labels[0] == pytest.approx(expected)
    assert priors.gates.shape == (1,)
    assert priors.labels.shape == (3,)
