"""Decompression of gzip, bzip2, xz and Zstandard, known by their first bytes, with a limit.

A file that grows to more than `MAX_RATIO` times its size, and beyond `MAX_BEFORE_RATIO`, is
refused: no data set compresses that well, but a file made to fill memory or the disk does.
"""

from __future__ import annotations

import importlib
import io
import re
import zlib
from typing import Any, BinaryIO, cast

BLOCK_BYTES = 1 << 16
MAX_RATIO = 200
MAX_BEFORE_RATIO = 1 << 26  # bytes that any file may decompress to

# Ending of the file name, first bytes and name of each kind.
KINDS = (
    (".gz", re.compile(rb"\x1f\x8b"), "gzip"),
    (".bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), "bzip2"),
    (".xz", re.compile(rb"\xfd7zXZ\0"), "xz"),
    (".zst", re.compile(rb"\x28\xb5\x2f\xfd"), "Zstandard"),
)
_MODULES = {"gzip": "gzip", "bzip2": "bz2", "xz": "lzma"}  # imported when they are needed
MAGIC_BYTES = 10
ENDINGS = tuple(ending for ending, _, _ in KINDS)


class BrokenStreamError(Exception):
    """The bytes of a file cannot be decompressed or decoded; the text says why."""


def compression_of(head: bytes) -> str:
    """Return the name of the compression of a file that begins with `head`, or an empty string."""
    return next((name for _, magic, name in KINDS if magic.match(head)), "")


def without_ending(name: str) -> str:
    """Return a file name without the ending of a compressed file."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def decompressed(stream: io.BufferedReader, kind: str) -> io.BufferedReader:
    """Return a stream of the decompressed bytes.

    Args:
        stream: The compressed file, at its start.
        kind: A name of `KINDS`.

    Reading from it raises `BrokenStreamError` if the data is damaged or grows out of bounds.
    """
    return io.BufferedReader(_Decompressed(stream, kind), BLOCK_BYTES)


class _Counted(io.RawIOBase):
    """Counts the bytes read from a stream."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream, self.n_read = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # read1: a pipe is not waited for when it has given something.
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        self.n_read += len(data)
        return len(data)


class _Decompressed(io.RawIOBase):
    """Decompressed bytes, as long as there are not far more of them than compressed ones."""

    def __init__(self, stream: io.BufferedReader, kind: str) -> None:
        self._kind, self._n_out = kind, 0
        self._input = _Counted(stream)
        self._output = _open(cast(BinaryIO, io.BufferedReader(self._input)), kind)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data: bytes = self._output.read1(len(buffer))
        except Exception as error:
            if not isinstance(error, _failures()):
                raise
            raise BrokenStreamError(
                f"the {self._kind} data is truncated or damaged; fetch or compress the file again"
            ) from error
        self._n_out += len(data)
        if self._n_out > max(MAX_BEFORE_RATIO, MAX_RATIO * self._input.n_read):
            raise BrokenStreamError(
                f"the {self._kind} data grows to more than {MAX_RATIO} times its size "
                f"({self._n_out:,} bytes so far), which no data set does; if it is meant to, "
                "decompress the file first"
            )
        buffer[: len(data)] = data
        return len(data)


def _open(file: BinaryIO, kind: str) -> Any:
    if kind in _MODULES:
        return importlib.import_module(_MODULES[kind]).open(file)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that damaged data raises."""
    import lzma

    import pyarrow as pa

    return (EOFError, zlib.error, OSError, lzma.LZMAError, pa.ArrowException)
