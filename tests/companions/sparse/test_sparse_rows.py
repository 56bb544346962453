import operator

import numpy as np
import pytest
from scipy.sparse import hstack
from scipy.sparse import random as random_matrix

from glocal.companions.sparse import sparse_rows
from glocal.companions.sparse.sparse_rows import combined_rows, move_last


@pytest.mark.parametrize("rows", [[], [0], [2, 3, 11], [11], list(range(12))])
@pytest.mark.parametrize("at_a_time", [1, 5, 100])
def test_rows_are_moved_to_the_end_within_the_same_arrays(rows, at_a_time, monkeypatch):
    monkeypatch.setattr(sparse_rows, "_ROWS_AT_A_TIME", at_a_time)
    matrix = random_matrix(12, 7, density=0.4, format="csr", dtype=np.float32, random_state=1)
    matrix.data[:] = 1 + np.arange(matrix.nnz)
    rows = np.array(rows, np.int64)
    others = np.setdiff1d(np.arange(12), rows)
    expected = matrix.toarray()[np.append(others, rows)]
    moved = move_last(matrix, rows)
    np.testing.assert_array_equal(moved.toarray(), expected)
    assert np.shares_memory(moved.data, matrix.data)


def side_by_side(left, right):
    return hstack([left, right], format="csr")


@pytest.mark.parametrize("combine", [operator.add, side_by_side])
@pytest.mark.parametrize("at_a_time", [1, 5, 100])
@pytest.mark.parametrize("densities", [(0.4, 0.3), (0.0, 0.3), (0.4, 0.0), (0.0, 0.0)])
def test_matrices_are_combined_part_by_part(combine, at_a_time, densities, monkeypatch):
    monkeypatch.setattr(sparse_rows, "_ROWS_COMBINED", at_a_time)
    left, right = (
        random_matrix(12, 7, density=share, format="csr", dtype=np.float32, random_state=seed)
        for seed, share in enumerate(densities)
    )
    expected = combine(left, right)
    expected.sort_indices()
    found = combined_rows(combine, left.copy(), right)
    assert found.shape == expected.shape
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == getattr(expected, name).dtype
