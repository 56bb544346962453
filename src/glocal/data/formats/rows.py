"""Documents from the rows of a file of any format.

- `Problems` decides whether a bad row raises or is skipped; `fields.py` finds text, labels and id.
- Labels in one string are split at a separator, which is detected from the first rows where it is
  not given (`separators.py`).
- The id of a document whose row has none is empty; the reader numbers such documents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glocal.data.corpus import Document
from glocal.data.formats.fields import ReadOptions, RowFields, kind_of
from glocal.data.formats.separators import DEFAULT, detect_separator, listed
from glocal.errors import DataError, Remedy

if TYPE_CHECKING:
    from glocal.data.formats.source import Source

ROWS_AHEAD = 1000  # rows that decide the separator of labels


@dataclass(slots=True)
class Problems:
    """Collects bad rows, or stops at the first.

    Used as a context, it takes the error of the row that the block is about.

    Args:
        skip: Collect bad rows and go on, instead of stopping at the first.
        on_bad_row: Called with the error of each bad row that is skipped.
        found: One sentence for each bad row.
        held: While rows are read ahead, the errors of bad rows among them.
    """

    skip: bool = False
    on_bad_row: Callable[[DataError], None] | None = None
    found: list[str] = field(default_factory=list)
    held: list[DataError] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, DataError):
            return False
        self.report(error)
        return True

    def report(self, error: DataError) -> None:
        """Collect the error of a bad row, or raise it."""
        if self.held is not None:
            self.held.append(error)
            return
        if not self.skip:
            error.remedies += (Remedy("skip_bad_rows", "skip such rows"),)
            raise error
        self.found.append(error.message)
        if self.on_bad_row is not None:
            self.on_bad_row(error)


RowReader = Callable[[Any, ReadOptions, Problems], Iterator[Document]]
Row = tuple[int, Mapping[str, Any]]


def documents_from_rows(
    rows: Iterable[Row], options: ReadOptions, problems: Problems, source: Source
) -> Iterator[Document]:
    """Yield the documents of rows; bad rows are reported to `problems`.

    Args:
        rows: Line or row numbers, and the fields by name.
        options: Names of the fields.
        problems: Collects or raises the errors of bad rows.
        source: The file; what is detected in its rows is noted in its findings.
    """
    fields = source.findings.fields = RowFields(options)
    separator = options.label_separator
    stream: Iterable[Row | DataError] = rows
    if separator is None:
        stream, cells = _look_ahead(iter(rows), fields, problems)
        source.findings.label_separator = detect_separator(cells)
        separator = source.findings.label_separator or DEFAULT
    for item in stream:
        with problems:
            if isinstance(item, DataError):
                raise item
            yield _document(item, fields, separator, path=source.name)


def _look_ahead(
    rows: Iterator[Row], fields: RowFields, problems: Problems
) -> tuple[Iterator[Row | DataError], list[str]]:
    """Return the rows with the errors between them, and the first labels given as a string."""
    ahead: list[Row | DataError] = []
    cells: list[str] = []
    problems.held = []
    try:
        for row in itertools.islice(rows, ROWS_AHEAD):
            ahead += [*problems.held, row]
            problems.held.clear()
            value = fields.labels_of(row[1])
            if isinstance(value, str):
                cells.append(value)
        ahead += problems.held
    finally:
        problems.held = None
    return itertools.chain(ahead, rows), cells


def _document(row: Row, fields: RowFields, separator: str, *, path: str) -> Document:
    line, values = row
    id_ = None
    try:
        given = fields.id_of(values)
        id_ = "" if given is None else _name(given, "the id")
        text = fields.text_of(values)
        labels = _labels_of(fields, values, separator)
    except ValueError as error:
        message, *remedies = error.args
        raise DataError(
            message, path=path, line=line, document_id=id_ or None, remedies=remedies
        ) from error
    return Document(id_, text, labels, line)


def split_labels(cell: str, separator: str) -> list[str]:
    """Split the labels of one string: a list, URIs in `<>`, or names with a separator between."""
    values = listed(cell)
    if values is not None:
        return [_label(value) for value in values]
    return [part.strip() for part in cell.split(separator) if part.strip()]


def _labels_of(fields: RowFields, row: Mapping[str, Any], separator: str) -> tuple[str, ...]:
    value = fields.labels_of(row)
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(dict.fromkeys(split_labels(value, separator)))
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"the field {fields.labels!r} is {kind_of(value)}, expected a list of labels: "
            f"{value!r:.60}"
        )
    return tuple(dict.fromkeys(map(_label, value)))


def _label(value: object) -> str:
    # Objects as in the output of a prediction, and as Annif writes subjects.
    if isinstance(value, dict):
        value = value.get("id", value.get("uri", value))
    text = _name(value, "a label")
    if not text.strip():
        raise ValueError("a label is blank; remove it or name it")
    return text


def _name(value: object, what: str) -> str:
    """Return a string or a whole number as a string."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(
            f"{what} is {kind_of(value)}, expected a string or an integer: {value!r:.60}"
        )
    return str(value)
