import numpy as np

from glocal.arrays import GrowingArray, ranges


def test_a_growing_array_holds_what_was_appended():
    rng = np.random.default_rng(0)
    parts = [rng.integers(100, size=size).astype(np.int32) for size in (3, 0, 40, 1, 2, 700)]
    growing = GrowingArray(np.int32)
    for part in parts:
        growing.add(part)
    whole = growing.whole()
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert whole.dtype == np.int32
    assert len(GrowingArray(np.float32).whole()) == 0


def test_numbers_of_ranges():
    assert ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
