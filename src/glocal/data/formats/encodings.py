"""Detection of the encoding of a text file from its first bytes.

- A byte order mark decides; without one, a file whose every other byte is zero is UTF-16.
- A file that is not UTF-8, has no UTF-8 character beyond ASCII, and whose other bytes are few,
  stand alone (in Greek or Cyrillic they make whole words) and are mostly letters of Windows-1252
  (which includes Latin-1) is read as that. Otherwise it counts as UTF-8, and its bad lines are
  reported.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import Any

from glocal.data.formats.compression import BLOCK_BYTES, BrokenStreamError
from glocal.errors import ConfigError

AUTO = "auto"
UTF8 = "utf-8"
WESTERN = "windows-1252"
MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
UTF8_CHARACTER = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
WESTERN_LETTER = re.compile(rb"[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff]")
RUN = re.compile(rb"[\x80-\xff]{3,}")
MOST_BEYOND_ASCII = 0.3  # share of bytes in a text in Windows-1252


def detect_encoding(head: bytes) -> str:
    """Return the encoding of a text that begins with `head`."""
    for mark, encoding in MARKS:
        if head.startswith(mark):
            return encoding
    if (half := len(head) // 2) and head.count(0) * 4 > half:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        if min(even, odd) * 10 < max(even, odd):
            return "utf-16-le" if odd > even else "utf-16-be"
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head)
    except UnicodeDecodeError:
        return WESTERN if _looks_western(head) else UTF8
    return UTF8


def _looks_western(head: bytes) -> bool:
    if UTF8_CHARACTER.search(head) or 0 in head:
        return False
    beyond = BEYOND_ASCII.findall(head)
    letters = WESTERN_LETTER.findall(head)
    in_runs = sum(map(len, RUN.findall(head)))
    few = len(beyond) < MOST_BEYOND_ASCII * len(head)
    return few and 2 * len(letters) > len(beyond) and 4 * in_runs < len(beyond)


def check_encoding(name: str) -> str:
    """Return the name of an encoding, in the spelling Python knows.

    Raises:
        ConfigError: There is no such encoding.
    """
    try:
        b"a".decode(name, errors="ignore")  # fails for codecs that are no text encodings
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"unknown encoding {name!r}; expected auto, or a name such as utf-8, utf-16, latin-1 "
            "or windows-1252"
        ) from error


def keeps_line_breaks(encoding: str) -> bool:
    """Return whether the bytes of a text can be split into lines before they are decoded."""
    return not encoding.startswith(("utf-16", "utf-32", "utf_16", "utf_32"))


class Recoded(io.RawIOBase):
    """The bytes of a text stream in UTF-8.

    Args:
        stream: The bytes as they are.
        encoding: Their encoding.
    """

    def __init__(self, stream: io.BufferedReader, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        while not self._ready:
            block = self._stream.read1(BLOCK_BYTES)
            try:
                self._ready = self._decoder.decode(block, not block).encode()
            except UnicodeError as error:
                raise BrokenStreamError(
                    f"the text is not valid {self._encoding.upper()} ({error}); save it as UTF-8"
                ) from error
            if not block:
                break
        data, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)
