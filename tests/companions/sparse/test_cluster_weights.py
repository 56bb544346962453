import numpy as np

from glocal.companions.sparse.cluster_weights import ClusterWeights, WeightBuilder
from glocal.companions.sparse.solver import START_BIAS


def test_clusters_become_one_matrix():
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((9, 6)) < 0.4, rng.random((9, 6)), 0).astype(np.float32)
    dense[:, 2] = 0  # in no cluster
    builder = WeightBuilder(dense.shape)
    for labels in ([4, 0], [5], [1, 3]):
        features, columns = np.nonzero(dense[:, labels])
        block = ClusterWeights(
            np.array(labels),
            features.astype(np.int32),
            columns.astype(np.uint8),
            dense[:, labels][features, columns],
            np.array(labels, np.float32),
        )
        builder.add(block)
    matrix = builder.matrix()
    builder.close()
    np.testing.assert_array_equal(matrix.toarray(), dense)
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(builder.biases, [0, 1, START_BIAS, 3, 4, 5])
