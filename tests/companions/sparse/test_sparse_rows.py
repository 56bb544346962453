import numpy as np
import pytest
from scipy.sparse import random as random_matrix

from glocal.companions.sparse import sparse_rows
from glocal.companions.sparse.sparse_rows import move_last


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
