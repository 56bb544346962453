"""A temporary file of word ids between two passes over a corpus.

Texts are split into words once; the second pass reads four bytes a word back from the file, so that
memory does not grow with the corpus.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


class WordSpool:
    """Batches of word ids in a temporary file, which is deleted when the spool is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._lengths: list[NDArray[np.int64]] = []
        self._sizes: list[int] = []

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def add(self, lengths: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Append a batch: the number of words of each text, and the ids of all words."""
        self._file.write(ids.astype(np.int32).tobytes())
        self._lengths.append(lengths)
        self._sizes.append(len(ids))

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Yield the batches in the order they were added."""
        place = 0
        for lengths, size in zip(self._lengths, self._sizes, strict=True):
            self._file.seek(4 * place)
            ids = np.frombuffer(self._file.read(4 * size), dtype=np.int32)
            place += size
            yield lengths, ids
