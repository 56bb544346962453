import numpy as np
from scipy.sparse import csr_matrix

from glocal.vocabulary.label_clusters import cluster_labels, label_leaves, label_means, tfidf


def test_every_label_is_in_one_cluster_of_nearly_equal_size():
    means = np.random.default_rng(0).standard_normal((101, 8)).astype(np.float32)
    clusters = cluster_labels(means, size=16, seed=0)
    assert sorted(np.concatenate(clusters).tolist()) == list(range(101))
    sizes = [len(cluster) for cluster in clusters]
    assert max(sizes) <= 16
    assert max(sizes) - min(sizes) <= 1


def test_similar_labels_come_together():
    rng = np.random.default_rng(0)
    group = np.tile([0, 1, 2, 3], 8)
    means = np.eye(4, dtype=np.float32)[group] + rng.normal(0, 0.01, (32, 4)).astype(np.float32)
    clusters = cluster_labels(means, size=8, seed=1)
    assert [len(set(group[cluster])) for cluster in clusters] == [1, 1, 1, 1]


def test_means_of_labels_without_texts_are_zero():
    features = csr_matrix(np.eye(3, dtype=np.float32))
    labels = csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=np.float32))
    means = label_means(features, labels, seed=0)
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), [1, 0, 1], rtol=1e-6)


def test_leaves_are_even_and_halves_of_a_tree():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2, 3], 5)
    means = np.eye(4, dtype=np.float32)[group] + rng.normal(0, 0.01, (20, 4)).astype(np.float32)
    leaves = label_leaves(means, n_leaves=4, seed=0)
    assert np.bincount(leaves).tolist() == [5, 5, 5, 5]
    assert all(len(set(group[leaves == leaf])) == 1 for leaf in range(4))
    finer = label_leaves(means, n_leaves=8, seed=0)
    assert (finer >> 1 == leaves).all()
    few = label_leaves(means[:3], n_leaves=4, seed=0)
    assert sorted(few.tolist()) == sorted(set(few.tolist()))


def test_rare_features_weigh_more_and_rows_have_length_one():
    weighted = tfidf(csr_matrix(np.array([[1.0, 3, 0], [1, 0, 1], [1, 0, 0]]))).toarray()
    assert (weighted[:, 0] == 0).all()  # in every text
    np.testing.assert_allclose(np.linalg.norm(weighted, axis=1), [1, 1, 0], atol=1e-6)
