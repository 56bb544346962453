import errno
import os
import tempfile

import numpy as np
import pytest

from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.spool import ArraySpool, WordSpool
from glocal.errors import TrainingError
from tests.companions.sparse.made_up import SMALL

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullFile:
    """A file whose writes fail once so many bytes were flushed."""

    def __init__(self, room):
        self.room, self.size, self.closed = room, 0, False

    def write(self, data):
        self.size += len(data)

    def flush(self):
        if self.size > self.room:
            raise FULL

    def close(self):
        self.closed = True
        self.flush()


def test_batches_come_back_in_order():
    spool = WordSpool()
    batches = [(np.array([2, 1]), np.arange(3)), (np.array([0]), np.arange(0))]
    for lengths, ids in batches:
        spool.add(lengths, ids.astype(np.int32))
    for (lengths, ids), (first, second) in zip(spool, batches, strict=True):
        np.testing.assert_array_equal(lengths, first)
        np.testing.assert_array_equal(ids, second)
    spool.close()


def test_arrays_of_several_types_come_back_in_order():
    spool = ArraySpool("numbers")
    groups = [
        (np.arange(3, dtype=np.uint8), np.ones(2, np.float32)),
        (np.zeros(0, np.uint8), np.full(1, 7, np.float32)),
    ]
    for group in groups:
        spool.add(*group)
    for found, group in zip(spool, groups, strict=True):
        for array, expected in zip(found, group, strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)
    spool.close()


def test_a_full_disk_names_the_folder_and_closes_the_file(monkeypatch, train, labels):
    files = []

    def full():
        files.append(FullFile(room=1000))
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr(tempfile, "tempdir", "/somewhere")
    with pytest.raises(TrainingError, match=r"/somewhere: .*No space left.*set TMPDIR"):
        SparseModel.fit(train, labels, SMALL)
    assert files
    assert all(file.closed for file in files)


def test_no_temporary_folder_at_all(monkeypatch):
    def none():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/a']")

    monkeypatch.setattr(tempfile, "TemporaryFile", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(TrainingError, match=r"the temporary folder: .*No usable temporary"):
        WordSpool()
