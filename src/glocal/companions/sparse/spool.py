"""A temporary file of word ids between two passes over a corpus.

Texts are split into words once; the second pass reads four bytes a word back from the file, so that
memory does not grow with the corpus.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glocal.errors import TrainingError


class WordSpool:
    """Batches of word ids in a temporary file, which is deleted when the spool is closed.

    Raises:
        TrainingError: The file cannot be written, as on a full disk.
    """

    def __init__(self) -> None:
        with _clear_errors():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._lengths: list[NDArray[np.int64]] = []
        self._sizes: list[int] = []

    def close(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):  # what is left to write was reported by `add`
            self._file.close()

    def add(self, lengths: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Append a batch: the number of words of each text, and the ids of all words."""
        with _clear_errors():
            self._file.write(ids.astype(np.int32).tobytes())
            self._file.flush()
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


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """Say which folder an error of the temporary file is about."""
    try:
        yield
    except OSError as error:
        # Not `gettempdir`, which looks for a folder again and may raise the same error.
        folder = tempfile.tempdir or "the temporary folder"
        raise TrainingError(
            f"{folder}: cannot write the words of the texts, four bytes a word "
            f"({error.strerror or error}); free some space there, or set TMPDIR to a folder that "
            "has room"
        ) from error
