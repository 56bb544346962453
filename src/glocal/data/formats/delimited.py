"""CSV and TSV with a header line.

- The delimiter of a CSV file is a comma, semicolon, tab or vertical bar, as its header shows.
- Quoted fields may contain separators, quotes (doubled) and line breaks.
- A row that cannot be parsed, or has another number of fields than the header, is reported with its
  first line. Reading continues with the line after it, so that a quote which is never closed costs
  one row, not the rest of the file.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Collection, Iterator

from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source

# A quoted field of more lines than this is treated as a quote that was never closed.
MAX_RECORD_LINES = 10_000
MAX_FIELD_CHARACTERS = 1 << 30
DELIMITERS = (",", ";", "\t", "|")


def csv_rows(
    source: Source, problems: Problems, columns: Collection[str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the first line and the fields, by column name, of each row after the header.

    The delimiter is detected from the header.

    Args:
        source: The file.
        problems: Collects or raises the errors of malformed rows.
        columns: Names of columns in lower case that the file may have.
    """
    header, _, _ = source.text_head().partition("\n")
    return _rows(source, problems, detect_delimiter(header, columns or ()))


def tsv_rows(
    source: Source, problems: Problems, columns: Collection[str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Do the same as `csv_rows` where the delimiter is a tab."""
    del columns
    return _rows(source, problems, "\t")


def detect_delimiter(header: str, columns: Collection[str]) -> str:
    """Return the delimiter that makes the most columns, those with a known name first."""

    def quality(delimiter: str) -> tuple[int, int]:
        names = header_names(header, delimiter)
        return sum(name in columns for name in names), len(names)

    return max(DELIMITERS, key=quality)


def header_names(header: str, delimiter: str) -> list[str]:
    """Return the names of the columns in lower case."""
    return [cell.strip().strip('"').lower() for cell in header.split(delimiter)]


def _rows(
    source: Source, problems: Problems, delimiter: str
) -> Iterator[tuple[int, dict[str, str]]]:
    source.findings.delimiter = delimiter
    header: list[str] | None = None
    for line, fields in _records(source, problems, delimiter=delimiter):
        if header is None:
            header = _check_header(source, fields)
        elif len(fields) != len(header):
            problems.report(
                source.error(
                    f"{len(fields)} fields, expected {len(header)} as in the header; "
                    "quote a field that contains the separator or a line break",
                    line,
                )
            )
        else:
            yield line, dict(zip(header, fields, strict=True))


def _check_header(source: Source, fields: list[str]) -> list[str]:
    header = [name.strip() for name in fields]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise source.error(f"the header names {repeated} more than once; rename a column", 1)
    return header


def _records(
    source: Source, problems: Problems, *, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the fields of each record, restarting after a malformed one."""
    # The limit of the csv module, 128 KiB a field, is below the length of many documents.
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    lines = _Rewindable(source.lines(problems))
    n_fields: int | None = None
    while (line := lines.begin()) is not None:
        try:
            fields = next(csv.reader(lines, delimiter=delimiter, strict=True), [])
        except csv.Error as error:
            problems.report(
                source.error(f"malformed row ({error}); close the quote or double it", line)
            )
            lines.rewind()
            continue
        if not fields:
            continue
        n_fields = n_fields or len(fields)
        if len(fields) != n_fields:
            lines.rewind()
        yield line, fields


class _Rewindable:
    """Lines for `csv.reader` that can be rewound to the second line of the current record."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._ahead: deque[tuple[int, str]] = deque()
        self._record: list[tuple[int, str]] = []

    def begin(self) -> int | None:
        """Start a record; return the number of its first line, or None at the end."""
        self._record = []
        if not self._ahead:
            following = next(self._lines, None)
            if following is None:
                return None
            self._ahead.append(following)
        return self._ahead[0][0]

    def rewind(self) -> None:
        """Make the line after the record's first one the next to be read."""
        self._ahead.extendleft(reversed(self._record[1:]))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self._record) >= MAX_RECORD_LINES:
            raise csv.Error(f"a quoted field runs over {MAX_RECORD_LINES} lines")
        item = self._ahead.popleft() if self._ahead else next(self._lines)
        self._record.append(item)
        return item[1] + "\n"
