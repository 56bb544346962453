"""Files in object stores and on other file systems, by addresses such as `s3://bucket/texts.jsonl`.

Arrow's own file systems read and write S3 and Google Cloud Storage without another package; any
other address (`az://`, `sftp://`, …) goes to fsspec. S3 is set up by the usual variables:
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`. A file appears when
it is complete: it is written to a temporary file first and uploaded at the end.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from glocal.errors import DataError, first_line, require

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_DENIED = re.compile(r"access.?denied|credential|forbidden|403|invalid.?access.?key", re.IGNORECASE)
_SECONDS = 10  # for a connection, and for an answer


def is_remote(path: str | Path) -> bool:
    """Return whether a path is an address such as `s3://bucket/key`."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def exists(address: str) -> bool:
    """Return whether there is a file at an address."""
    with failures(address):
        system, path = _file_system(address)
        return bool(system.get_file_info(path).is_file)


@contextlib.contextmanager
def open_stream(address: str) -> Iterator[io.RawIOBase]:
    """Open a file for reading from its start."""
    with failures(address):
        system, path = _file_system(address)
        native = system.open_input_stream(path, compression=None)
    with native:
        yield _Stream(native, address)


@contextlib.contextmanager
def open_seekable(address: str) -> Iterator[Any]:
    """Open a file for reading anywhere."""
    with failures(address):
        system, path = _file_system(address)
        native = system.open_input_file(path)
    with native:
        yield native


@contextlib.contextmanager
def write_file(address: str) -> Iterator[BinaryIO]:
    """Open a file that appears at an address when the block ends without an error."""
    with tempfile.TemporaryFile() as file:
        yield cast(BinaryIO, file)
        file.seek(0)
        with failures(address, "written"):
            system, path = _file_system(address)
            with system.open_output_stream(path, compression=None) as target:
                shutil.copyfileobj(file, target, 1 << 22)


class RemoteStore:
    """A folder of files in an object store; see `FileStore`.

    Args:
        address: Its address.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        from pyarrow.fs import FileSelector

        with failures(self.address):
            system, path = _file_system(self.address)
            found = system.get_file_info(FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.is_file)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with failures(self.address):
            system, path = _file_system(self.address)
            with system.open_input_stream(f"{path}/{name}", compression=None) as file:
                return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """Publish a file, all at once."""
        with failures(self.address, "written"):
            system, path = _file_system(self.address)
            with system.open_output_stream(f"{path}/{name}", compression=None) as file:
                file.write(content)

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        if self.names():
            with failures(self.address, "removed"):
                system, path = _file_system(self.address)
                system.delete_dir(path)

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing: object stores have no locks."""
        return contextlib.nullcontext()


@contextlib.contextmanager
def failures(address: str, done: str = "read") -> Iterator[None]:
    """Turn any failure into one clear error."""
    try:
        yield
    except (OSError, ValueError) as error:
        text = first_line(error).rstrip(".")[:200]
        advice = ""
        if address.startswith("s3://") and _DENIED.search(str(error)):
            advice = (
                "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) to an account "
                "that may do so"
            )
        raise DataError(f"cannot be {done}: {text}{advice}", path=address) from error


class _Stream(io.RawIOBase):
    """Arrow's stream as one of Python's."""

    def __init__(self, native: Any, address: str) -> None:
        self._native, self._address = native, address

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        with failures(self._address):
            block = self._native.read(len(view))
        view[: len(block)] = block
        return len(block)


def _file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    found = _ADDRESS.match(address)
    assert found is not None, "an address"
    scheme, path = found[1].lower(), found[2]
    if scheme == "s3":
        return _s3(), path
    return _other(scheme, address)


@functools.cache
def _s3() -> Any:
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, _, host = endpoint.rpartition("://")
    return S3FileSystem(
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        endpoint_override=host or None,
        scheme=scheme or "https",
        connect_timeout=_SECONDS,
        request_timeout=_SECONDS * 6,
    )


def _other(scheme: str, address: str) -> tuple[Any, str]:
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        system, path = FileSystem.from_uri(address)
    except ArrowInvalid:  # not one of Arrow's own
        require("fsspec", extra="remote", purpose=f"files at {scheme}://")
        from fsspec.core import url_to_fs

        try:
            handled, path = url_to_fs(address)
        except ImportError as error:  # it names the package that is missing
            raise DataError(f"cannot be opened: {error}", path=address) from error
        system = PyFileSystem(FSSpecHandler(handled))
    return system, path
