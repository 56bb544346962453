"""Temporary files of arrays that are written once and read in the same order.

Texts are split into words once; the second pass reads four bytes a word back from the file, so that
memory does not grow with the corpus. The weights of label clusters wait in one until all are there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.errors import TrainingError


class ArraySpool:
    """Groups of arrays in a temporary file, which is deleted when the spool is closed.

    Args:
        content: What the arrays are, for error messages.

    Raises:
        TrainingError: The file cannot be written, as on a full disk.
    """

    def __init__(self, content: str) -> None:
        self._content = content
        with _clear_errors(content):
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._groups: list[list[tuple[np.dtype[Any], int]]] = []

    def close(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):  # what is left to write was reported by `add`
            self._file.close()

    def add(self, *arrays: NDArray[Any]) -> None:
        """Append some arrays."""
        with _clear_errors(self._content):
            for array in arrays:
                self._file.write(array.tobytes())
            self._file.flush()
        self._groups.append([(array.dtype, len(array)) for array in arrays])

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield the groups of arrays in the order they were added."""
        place = 0
        for group in self._groups:
            self._file.seek(place)
            yield tuple(
                np.frombuffer(self._file.read(dtype.itemsize * size), dtype)
                for dtype, size in group
            )
            place += sum(dtype.itemsize * size for dtype, size in group)


class WordSpool:
    """Batches of word ids in a temporary file, which is deleted when the spool is closed.

    Raises:
        TrainingError: The file cannot be written, as on a full disk.
    """

    def __init__(self) -> None:
        self._spool = ArraySpool("the words of the texts, four bytes a word")
        self._lengths: list[NDArray[np.int64]] = []

    def close(self) -> None:
        """Delete the file."""
        self._spool.close()

    def add(self, lengths: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Append a batch: the number of words of each text, and the ids of all words."""
        self._spool.add(ids.astype(np.int32, copy=False))
        self._lengths.append(lengths)

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Yield the batches in the order they were added."""
        for lengths, (ids,) in zip(self._lengths, self._spool, strict=True):
            yield lengths, ids


@contextlib.contextmanager
def _clear_errors(content: str) -> Iterator[None]:
    """Say which folder an error of the temporary file is about."""
    try:
        yield
    except OSError as error:
        # Not `gettempdir`, which looks for a folder again and may raise the same error.
        folder = tempfile.tempdir or "the temporary folder"
        raise TrainingError(
            f"{folder}: cannot write {content} ({error.strerror or error}); free some space there, "
            "or set TMPDIR to a folder that has room"
        ) from error
