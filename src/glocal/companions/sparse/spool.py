"""Word numbers of a corpus on disk between two passes over them.

Texts are cut into words once; what is counted in one pass and built in the next reads four bytes
a word back from a temporary file, so that memory does not grow with the corpus.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

__all__ = ["WordSpool"]


class WordSpool:
    """Batches of word numbers in a temporary file that goes when the spool is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._lengths: list[NDArray[np.int64]] = []
        self._sizes: list[int] = []

    def __enter__(self) -> WordSpool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, lengths: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Keep a batch: how many words each of its texts has, and the words of all of them."""
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
