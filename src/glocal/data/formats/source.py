"""Sources of bytes and lines: a file, a compressed file, or standard input.

- Compression and text encoding are detected once, from the first bytes, and undone here, so that
  no reader of a format has to know of them.
- Lines are decoded one at a time, so that a byte that does not belong to the encoding is reported
  with its line.
- Any failure to read (a missing file, a folder, no permission, damaged compression) becomes one
  `DataError`.
- The start of standard input can be read to detect the format without consuming it.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import select
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from glocal.data.formats.compression import (
    MAGIC_BYTES,
    BrokenStreamError,
    compression_of,
    decompressed,
    without_ending,
)
from glocal.data.formats.encodings import (
    AUTO,
    UTF8,
    WESTERN,
    Recoded,
    check_encoding,
    detect_encoding,
    keeps_line_breaks,
)
from glocal.data.formats.findings import Findings
from glocal.data.formats.rows import Problems
from glocal.data.remote import exists, is_remote, open_seekable, open_stream
from glocal.errors import DataError, Remedy

STDIN = "-"
HEAD_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 28


class Source:
    """A source of bytes.

    Args:
        path: A file, or `-` for standard input.
        encoding: Encoding of a text file; `auto` detects it.
        before_waiting: Called before waiting for standard input.

    Attributes:
        findings: What was detected about it.

    Raises:
        DataError: The path does not exist or may not be read.
        ConfigError: There is no such encoding.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        encoding: str = AUTO,
        before_waiting: Callable[[], None] | None = None,
    ) -> None:
        self._before_waiting = before_waiting
        self._given_encoding = encoding if encoding == AUTO else check_encoding(encoding)
        self.is_stdin = str(path) == STDIN
        self.name = "standard input" if self.is_stdin else str(path)
        self.path = Path(path)
        self._address = str(path) if is_remote(path) else None
        self.findings = Findings()
        self._stdin: io.BufferedReader | None = None
        if self.is_stdin:
            # The raw file: the buffered one returns nothing until a buffer is full.
            self._stdin = self._undo_compression(
                _peekable(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))
            )
        else:
            self._check_exists()

    @property
    def is_dir(self) -> bool:
        """Whether the path is a folder."""
        return not self.is_stdin and self._address is None and self.path.is_dir()

    @property
    def plain_name(self) -> str:
        """Name of the file in lower case, without the ending of a compressed file."""
        return without_ending(self.path.name.lower())

    @functools.cached_property
    def encoding(self) -> str:
        """The encoding of the text, as given or as detected."""
        return (
            detect_encoding(self.head()) if self._given_encoding == AUTO else self._given_encoding
        )

    def head(self) -> bytes:
        """Return the first bytes, at most 256 KiB, decompressed, without consuming them."""
        if self._stdin is not None:
            with self.failures():
                return self._stdin.peek(HEAD_BYTES)[:HEAD_BYTES]
        first = b""
        with self.failures(), self.open() as file:
            try:
                while len(first) < HEAD_BYTES and (block := file.read1(HEAD_BYTES - len(first))):
                    first += block
            except BrokenStreamError:
                # Reported with its line by those who read on.
                if not first:
                    raise
        return first

    def text_head(self) -> str:
        """Return the first characters, without a byte order mark."""
        decoder = codecs.getincrementaldecoder(self.encoding)(errors="replace")
        try:
            return decoder.decode(self.head()).removeprefix("\ufeff")
        except UnicodeError as error:  # such as a byte order mark that is missing
            raise self.error(f"the text is not {self.encoding.upper()} ({error})") from error

    def error(
        self, message: str, line: int | None = None, *, remedies: tuple[Remedy, ...] = ()
    ) -> DataError:
        """Return an error that names this source."""
        return DataError(message, path=self.name, line=line, remedies=remedies)

    @contextlib.contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """Open for reading bytes, decompressed."""
        if self._stdin is not None:
            yield self._stdin
            return
        if self._address is not None:
            with open_stream(self._address) as raw, self._undo_compression(_peekable(raw)) as file:
                yield file
            return
        with self.failures():
            opened = self.path.open("rb")
        with opened, self._undo_compression(opened) as content:
            yield content

    def _undo_compression(self, stream: io.BufferedReader) -> io.BufferedReader:
        with self.failures():
            kind = self.findings.compression = compression_of(stream.peek(MAGIC_BYTES))
        return decompressed(stream, kind) if kind else stream

    @contextlib.contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        """Open for random access; a stream is copied to a temporary file first."""
        with self.open() as file:
            if self._address is not None and not self.findings.compression:
                with open_seekable(self._address) as anywhere:
                    yield anywhere
                return
            if self._stdin is None and not self.findings.compression:
                yield file
                return
            with tempfile.TemporaryFile() as copy, self.failures():
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                yield cast(BinaryIO, copy)

    @contextlib.contextmanager
    def _open_text(self) -> Iterator[tuple[io.BufferedReader, str]]:
        """Open for reading text; yields the bytes, whose line breaks are those of ASCII."""
        with self.open() as file:
            if keeps_line_breaks(self.encoding):
                yield file, self.encoding
            else:
                yield _peekable(Recoded(file, self.encoding)), UTF8

    def lines(self, problems: Problems) -> Iterator[tuple[int, str]]:
        """Yield the number (from 1) and the text of each line, without its line break.

        Lines that cannot be decoded are reported to `problems`.
        """
        for number, raw in self.raw_lines():
            with problems:
                yield number, self.decode(number, raw)

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number (from 1) and the bytes of each line."""
        number = 0
        with self._open_text() as (file, _):
            try:
                for number, raw in enumerate(self._split(file), 1):
                    if len(raw) > MAX_LINE_BYTES:
                        raise self.error(
                            f"the line is longer than {MAX_LINE_BYTES >> 20} MiB; expected one "
                            "document per line",
                            number,
                        )
                    yield number, raw
            except BrokenStreamError as error:
                raise self.error(str(error), number + 1) from error
            except OSError as error:
                raise self.error(f"cannot be read: {error.strerror or error}") from error

    def text_blocks(self) -> Iterator[str]:
        """Yield the text in pieces of any length.

        Raises:
            DataError: It cannot be decoded.
        """
        with self._open_text() as (file, encoding), self.failures():
            decoder = codecs.getincrementaldecoder(encoding)()
            for block in iter(functools.partial(file.read1, HEAD_BYTES), b""):
                try:
                    yield decoder.decode(block)
                except UnicodeDecodeError as error:
                    raise self._wrong_byte(error, None) from error

    def _split(self, file: io.BufferedReader) -> Iterator[bytes]:
        """Return the lines of a file; those of standard input as they come."""
        if self._stdin is None:
            return iter(functools.partial(file.readline, MAX_LINE_BYTES + 1), b"")
        return self._lines_as_they_come(file)

    def _lines_as_they_come(self, stream: io.BufferedReader) -> Iterator[bytes]:
        """Yield lines as soon as they are complete, and announce every wait."""
        parts: list[bytes] = []
        n_bytes = 0
        while n_bytes <= MAX_LINE_BYTES:
            if self._before_waiting is not None and not _has_input():
                self._before_waiting()
            block = stream.read1(HEAD_BYTES)
            if not block:
                break
            *ends, rest = block.split(b"\n")
            for end in ends:
                yield b"".join([*parts, end, b"\n"])
                parts, n_bytes = [], 0
            parts.append(rest)
            n_bytes += len(rest)
        if last := b"".join(parts):
            yield last

    def decode(self, number: int, raw: bytes) -> str:
        """Decode a line and remove its line break.

        Raises:
            DataError: It does not have the encoding of the source.
        """
        encoding = self.encoding if keeps_line_breaks(self.encoding) else UTF8
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError as error:
            raise self._wrong_byte(error, number) from error
        return (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")

    def _wrong_byte(self, error: UnicodeDecodeError, line: int | None) -> DataError:
        return self.error(
            f"byte 0x{error.object[error.start]:02x} at position {error.start + 1} is not "
            f"{self.encoding.upper()}; save the file as UTF-8",
            line,
            remedies=(Remedy("encoding", "read another encoding", value=f"'{WESTERN}'"),),
        )

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn any failure to read into one clear error."""
        try:
            yield
        except BrokenStreamError as error:
            raise self.error(str(error)) from error
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from error

    def _check_exists(self) -> None:
        if self._address is not None:
            if not exists(self._address):
                raise self.error("no such file; check the address")
            return
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


def _has_input() -> bool:
    """Return whether standard input can be read without waiting; True if unknown."""
    try:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, TypeError, ValueError):  # not a file, or a system that supports sockets only
        return True


def _peekable(stream: BinaryIO | io.RawIOBase) -> io.BufferedReader:
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
