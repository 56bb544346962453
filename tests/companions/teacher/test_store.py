"""Cached arrays: computed once, mapped, built again when damaged, never half written."""

import numpy as np
import pytest

from glocal.companions.teacher.array_store import cached_arrays
from glocal.errors import DataError

SPEC = {"numbers": (np.int32, (3, 2)), "empty": (np.float32, (0, 4))}


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Ask for an entry; the result and how often it was computed."""
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    calls = []

    def fill(arrays):
        calls.append(1)
        arrays["numbers"][:] = np.arange(6).reshape(3, 2)

    return lambda key="key": (cached_arrays("things", key, SPEC, fill), len(calls))


def test_computed_once_and_mapped(counted):
    for _ in range(2):
        arrays, calls = counted()
        assert calls == 1
        assert isinstance(arrays["numbers"], np.memmap)
        assert arrays["numbers"].tolist() == [[0, 1], [2, 3], [4, 5]]
        assert arrays["empty"].shape == (0, 4)
    assert counted("other")[1] == 2


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY\x01\x00", "shape"])
def test_a_damaged_entry_is_built_again(counted, tmp_path, content):
    counted()
    path = tmp_path / "things" / "key" / "numbers.npy"
    if content is None:
        path.unlink()
    elif content == "shape":
        np.save(path, np.zeros((3, 3), dtype=np.int32))
    else:
        path.write_bytes(content)
    arrays, calls = counted()
    assert calls == 2
    assert arrays["numbers"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(counted, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glocal.companions.teacher.array_store.replace_dir", full)
    with pytest.raises(DataError, match=r"No space left on device.*set GLOCAL_CACHE"):
        counted()
    assert list((tmp_path / "things").iterdir()) == []


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_arrays("things", "key", SPEC, stop)
    assert list((tmp_path / "things").iterdir()) == []
