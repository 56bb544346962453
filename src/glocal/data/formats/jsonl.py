"""JSON: one object per line, objects over several lines, or one array of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from glocal.data.formats.rows import Problems
from glocal.data.formats.source import MAX_LINE_BYTES, Source
from glocal.errors import DataError

EXAMPLE = '{"id": "1", "text": "…", "labels": ["a", "b"]}'
BETWEEN = re.compile(r"[\s,]*")
UNDECIDED = 16  # characters before the end of a block where an error may be due to the end


def json_rows(
    source: Source,
    problems: Problems,
    columns: Collection[str] | None = None,
    *,
    example: str = EXAMPLE,
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the line and the fields of each JSON object; blank lines are ignored.

    Args:
        source: The file.
        problems: Collects or raises the errors of lines that are not an object.
        columns: Unused, as a line cannot be read in part.
        example: A valid line, shown in messages.
    """
    del columns
    head = source.text_head().lstrip()
    values = _values(source) if _is_one_document(head) else _lines(source, problems, example)
    for line, value in values:
        if isinstance(value, dict):
            yield line, value
        else:
            shown = json.dumps(value, ensure_ascii=False)
            problems.report(
                source.error(f"expected a JSON object such as {example}, got {shown:.60}", line)
            )


def _is_one_document(head: str) -> bool:
    """Return whether a file is an array, or its first object goes on after the first line."""
    if head.startswith("["):
        return True
    first, line_break, _ = head.partition("\n")
    try:
        json.loads(first)
    except json.JSONDecodeError as error:
        return bool(line_break) and error.pos >= len(first.rstrip())
    except RecursionError:
        pass
    return False


def _lines(source: Source, problems: Problems, example: str) -> Iterator[tuple[int, object]]:
    """Yield the line and the value of every line that is not blank."""
    for line, text in source.lines(problems):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            problems.report(
                source.error(f"not valid JSON ({_place(error)}); expected {example}", line)
            )
        else:
            yield line, value


def _values(source: Source) -> Iterator[tuple[int, object]]:
    """Yield the first line and the value of each element of an array, or of values in a row.

    Raises:
        DataError: The text is not JSON; what follows cannot be read either.
    """
    text = _Text(source)
    in_array = False
    while (start := text.peek()) is not None:
        if start == ("]" if in_array else "["):
            in_array = not in_array
            text.position += 1
        else:
            yield text.line, text.value()
    if in_array:
        raise source.error("the JSON array is not closed; the file may be truncated", text.line)


class _Text:
    """The text of a source, of which only the value being read is in memory."""

    def __init__(self, source: Source) -> None:
        self.line, self.position = 1, 0
        self._source, self._blocks = source, source.text_blocks()
        self._buffer = next(self._blocks, "").removeprefix("\ufeff")
        self._decoder = json.JSONDecoder()

    def peek(self) -> str | None:
        """Return the first character of the next value, or None at the end."""
        while True:
            match = BETWEEN.match(self._buffer, self.position)
            self._advance(match.end() if match else self.position)
            if self.position < len(self._buffer):
                return self._buffer[self.position]
            if not self._read_more():
                return None

    def value(self) -> object:
        """Return the value at the current position."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self.position)
            except RecursionError as error:
                raise self._source.error("the JSON is nested too deeply", self.line) from error
            except json.JSONDecodeError as error:
                may_go_on = error.msg.startswith("Unterminated") or (
                    error.pos >= len(self._buffer) - UNDECIDED
                )
                if not (may_go_on and self._read_more()):
                    raise self._not_json(error) from error
                continue
            # A number may go on in the next block.
            if end < len(self._buffer) or isinstance(value, dict | list) or not self._read_more():
                self._advance(end)
                return value

    def _advance(self, position: int) -> None:
        self.line += self._buffer.count("\n", self.position, position)
        self.position = position

    def _read_more(self) -> bool:
        """Drop what was read, and read as much as there is left of the buffer or more."""
        rest = self._buffer[self.position :]
        if len(rest) > MAX_LINE_BYTES:
            raise self._source.error(
                f"a JSON value is longer than {MAX_LINE_BYTES >> 20} MiB; expected one document",
                self.line,
            )
        parts: list[str] = []
        while sum(map(len, parts)) <= len(rest) and (block := next(self._blocks, "")):
            parts.append(block)
        if parts:
            self._buffer, self.position = "".join([rest, *parts]), 0
        return bool(parts)

    def _not_json(self, error: json.JSONDecodeError) -> DataError:
        line = self.line + self._buffer.count("\n", self.position, error.pos)
        return self._source.error(
            f"not valid JSON ({error.msg}); the file may be truncated, and what follows cannot "
            "be read",
            line,
        )


def _place(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return str(error)
