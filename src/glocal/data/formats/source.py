"""Sources of bytes and lines: a file, a gzipped file, or standard input.

- Lines are decoded one at a time, so that a byte that is not UTF-8 is reported with its line.
- Any failure to read (a missing file, a folder, no permission, a truncated gzip) becomes one
  `DataError`.
- The start of standard input can be read to detect the format without consuming it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import select
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from glocal.data.formats.rows import Problems
from glocal.errors import DataError

STDIN = "-"
HEAD_BYTES = 1 << 16
GZIP_MAGIC = b"\x1f\x8b"
BROKEN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)


class Source:
    """A source of bytes.

    Args:
        path: A file, or `-` for standard input.
        before_waiting: Called before waiting for standard input.

    Raises:
        DataError: The path does not exist or may not be read.
    """

    def __init__(
        self, path: str | Path, *, before_waiting: Callable[[], None] | None = None
    ) -> None:
        self._before_waiting = before_waiting
        self.is_stdin = str(path) == STDIN
        self.name = "standard input" if self.is_stdin else str(path)
        self.path = Path(path)
        self._stdin: io.BufferedReader | None = None
        if self.is_stdin:
            # The raw file: the buffered one returns nothing until a buffer is full.
            self._stdin = _peekable(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))
            if self._stdin.peek(2)[:2] == GZIP_MAGIC:
                self._stdin = _peekable(cast(BinaryIO, gzip.GzipFile(fileobj=self._stdin)))
        else:
            self._check_exists()

    @property
    def is_dir(self) -> bool:
        """Whether the path is a folder."""
        return not self.is_stdin and self.path.is_dir()

    @property
    def plain_name(self) -> str:
        """Name of the file in lower case, without a final `.gz`."""
        return self.path.name.lower().removesuffix(".gz")

    def head(self) -> bytes:
        """Return the first bytes, at most 64 KiB, decompressed, without consuming them."""
        first = b""
        with self.failures():
            if self._stdin is not None:
                first = self._stdin.peek(HEAD_BYTES)[:HEAD_BYTES]
            else:
                with self.open() as file:
                    first = file.read(HEAD_BYTES)
        return first

    def error(self, message: str, line: int | None = None) -> DataError:
        """Return an error that names this source."""
        return DataError(message, path=self.name, line=line)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open for reading bytes, decompressed."""
        if self._stdin is not None:
            yield self._stdin
            return
        with self.failures():
            file = self.path.open("rb")
        with file:
            if file.read(2) == GZIP_MAGIC:
                file.seek(0)
                with gzip.open(file) as unzipped:
                    yield cast(BinaryIO, unzipped)
            else:
                file.seek(0)
                yield file

    @contextlib.contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        """Open for random access; a stream is copied to a temporary file first."""
        with self.open() as file:
            if self._stdin is None and isinstance(file, io.BufferedReader):
                yield file
                return
            with tempfile.TemporaryFile() as copy, self.failures():
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                yield cast(BinaryIO, copy)

    def lines(self, problems: Problems) -> Iterator[tuple[int, str]]:
        """Yield the number (from 1) and the text of each line, without its line break.

        Lines that are not UTF-8 are reported to `problems`.
        """
        for number, raw in self.raw_lines():
            try:
                text = self.decode(number, raw)
            except DataError as error:
                problems.report(error)
            else:
                yield number, text

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number (from 1) and the bytes of each line."""
        number = 0
        with self.open() as file:
            try:
                lines = file if self._stdin is None else self._lines_as_they_come(self._stdin)
                for number, raw in enumerate(lines, 1):
                    yield number, raw
            except BROKEN_GZIP as error:
                raise self._truncated(number + 1) from error
            except OSError as error:
                raise self.error(f"cannot be read: {error.strerror or error}") from error

    def _lines_as_they_come(self, stream: io.BufferedReader) -> Iterator[bytes]:
        """Yield lines as soon as they are complete, and announce every wait."""
        parts: list[bytes] = []
        while True:
            if self._before_waiting is not None and not _has_input():
                self._before_waiting()
            block = stream.read1(HEAD_BYTES)
            if not block:
                break
            *ends, rest = block.split(b"\n")
            for end in ends:
                yield b"".join([*parts, end, b"\n"])
                parts = []
            parts.append(rest)
        if last := b"".join(parts):
            yield last

    def decode(self, number: int, raw: bytes) -> str:
        """Decode a line and remove its line break.

        Raises:
            DataError: It is not UTF-8.
        """
        try:
            return raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise self.error(
                f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8; save "
                "the file as UTF-8, or convert it: iconv -f LATIN1 -t UTF-8",
                number,
            ) from error

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn any failure to read into one clear error."""
        try:
            yield
        except BROKEN_GZIP as error:
            raise self._truncated(None) from error
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from error

    def _check_exists(self) -> None:
        try:
            self.path.stat()
        except FileNotFoundError as error:
            near = _nearest_name(self.path)
            hint = f"; did you mean {near}?" if near else "; check the path"
            raise self.error(f"no such file{hint}") from error
        except (OSError, ValueError) as error:
            raise self.error(
                f"cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error

    def _truncated(self, line: int | None) -> DataError:
        return self.error(
            "the gzip data is truncated or damaged; fetch or compress the file again", line
        )


def _has_input() -> bool:
    """Return whether standard input can be read without waiting; True if unknown."""
    try:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, TypeError, ValueError):  # not a file, or a system that supports sockets only
        return True


def _peekable(stream: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, stream), HEAD_BYTES)


def _nearest_name(path: Path) -> Path | None:
    # difflib is only needed once something went wrong.
    import difflib

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.75)
    return path.parent / near[0] if near else None
