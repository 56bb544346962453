"""A folder of small files, on this machine or in an object store.

A file appears under its name when it is complete, or not at all: on a file system it is written
under a temporary name and renamed, in an object store an object becomes visible when its upload
ends. Files are read and written whole.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from glocal.data.atomic import atomic_write, exclusive
from glocal.data.remote import RemoteStore, is_remote
from glocal.errors import DataError


class LocalStore:
    """A folder of a file system.

    Args:
        address: Its path; it is created when the first file is written.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._folder = Path(address)

    def names(self) -> list[str]:
        """Return the names of the complete files, sorted."""
        if not self._folder.is_dir():
            return []
        return sorted(p.name for p in self._folder.iterdir() if not p.name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Publish a file, all at once; one of the same name is replaced."""
        with atomic_write(self._folder / name) as file:
            file.write(content)

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes from working on the folder."""
        try:
            with exclusive(self._folder):
                yield
        except BlockingIOError as error:
            raise DataError(
                f"another run writes to it ({error.strerror}); wait for it, or write elsewhere",
                path=self.address,
            ) from error


FileStore = LocalStore | RemoteStore  # a folder of files that are published atomically


def open_store(address: str) -> FileStore:
    """Return the folder at an address: a path, or one such as `s3://bucket/folder`."""
    if is_remote(address):
        return RemoteStore(address)
    return LocalStore(address)
