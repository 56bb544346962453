"""Documents from the rows of a file of any format.

- `ReadOptions` names the fields; `Problems` decides whether a bad row raises or is skipped.
- In a row without `text`, the text is `title` and `content` joined by a line break; `uid` replaces
  a missing `id` and `target_ind` missing `labels` (the names of the XMC repository).
- The id of a document whose row has none is empty; the reader numbers such documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.data.corpus import Document
from glocal.errors import DataError, Remedy

TEXT_PARTS = ("title", "content")
ID_STAND_IN = "uid"
LABELS_STAND_IN = "target_ind"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading the rows of a file.

    Args:
        text_field: Field or column of the text.
        labels_field: Field or column of the labels.
        id_field: Field or column of the id.
        label_separator: Separator of labels in one string.
        texts_path: File of the texts, for layouts with separate files.
        labels_path: File of the labels, for layouts with separate files.
    """

    text_field: str = "text"
    labels_field: str = "labels"
    id_field: str = "id"
    label_separator: str = ";"
    texts_path: str | Path | None = None
    labels_path: str | Path | None = None


@dataclass(slots=True)
class Problems:
    """Collects bad rows, or stops at the first.

    Args:
        skip: Collect bad rows and go on, instead of stopping at the first.
        on_bad_row: Called with the error of each bad row that is skipped.
        found: One sentence for each bad row.
    """

    skip: bool = False
    on_bad_row: Callable[[DataError], None] | None = None
    found: list[str] = field(default_factory=list)

    def report(self, error: DataError) -> None:
        """Collect the error of a bad row, or raise it."""
        if not self.skip:
            error.remedies += (Remedy("skip_bad_rows", "skip such rows"),)
            raise error
        self.found.append(error.message)
        if self.on_bad_row is not None:
            self.on_bad_row(error)


RowReader = Callable[[Any, ReadOptions, Problems], Iterator[Document]]


def documents_from_rows(
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    options: ReadOptions,
    problems: Problems,
    *,
    path: str,
) -> Iterator[Document]:
    """Yield the documents of rows; bad rows are reported to `problems`.

    Args:
        rows: Line or row numbers, and the fields by name.
        options: Names of the fields.
        problems: Collects or raises the errors of bad rows.
        path: The file, for messages.
    """
    for line, row in rows:
        try:
            document = _document(row, options, path=path, line=line)
        except DataError as error:
            problems.report(error)
        else:
            yield document


def _document(row: Mapping[str, Any], options: ReadOptions, *, path: str, line: int) -> Document:
    id_ = None
    try:
        id_ = _id_of(row, options.id_field)
        text = _text_of(row, options.text_field)
        labels = _labels_of(row, options)
    except ValueError as error:
        message, *remedies = error.args
        raise DataError(
            message, path=path, line=line, document_id=id_ or None, remedies=remedies
        ) from error
    return Document(id_, text, labels, line)


def split_labels(cell: str, separator: str) -> list[str]:
    """Split the labels of one string: a JSON list, or names with a separator between them."""
    stripped = cell.strip()
    if stripped.startswith("["):
        try:
            values = json.loads(stripped)
        except ValueError:
            values = None
        if isinstance(values, list):
            return [_label(value) for value in values]
    return [part.strip() for part in cell.split(separator) if part.strip()]


def _text_of(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None and name == "text":
        parts = [row[part] for part in TEXT_PARTS if row.get(part) is not None]
        if parts and all(isinstance(part, str) for part in parts):
            return "\n".join(part for part in parts if part.strip())
    if value is None and name in row:
        raise ValueError(f"the field {name!r} is null, expected a string")
    if value is None:
        raise ValueError(
            f"no field {name!r} (fields: {', '.join(map(str, row)) or 'none'})",
            Remedy("text_field", "name the field of the text", value="…"),
        )
    if not isinstance(value, str):
        raise ValueError(f"the field {name!r} is {_kind(value)}, expected a string: {value!r:.60}")
    return value


def _labels_of(row: Mapping[str, Any], options: ReadOptions) -> tuple[str, ...]:
    name = options.labels_field
    value = row.get(name)
    if value is None and name == "labels":
        value = row.get(LABELS_STAND_IN)
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(dict.fromkeys(split_labels(value, options.label_separator)))
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"the field {name!r} is {_kind(value)}, expected a list of labels: {value!r:.60}"
        )
    return tuple(dict.fromkeys(map(_label, value)))


def _label(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(
            f"a label is {_kind(value)}, expected a string or an integer: {value!r:.60}"
        )
    text = str(value)
    if not text.strip():
        raise ValueError("a label is blank; remove it or name it")
    return text


def _id_of(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None and name == "id":
        value = row.get(ID_STAND_IN)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(
            f"the id is {_kind(value)}, expected a string or an integer: {value!r:.60}"
        )
    return str(value)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", float: "a decimal number", bool: "a boolean"}
    if value is None:
        return "null"
    return names.get(type(value), f"of type {type(value).__name__}")
