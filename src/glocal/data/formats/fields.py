"""The fields of a row that hold its text, labels and id.

- A field is found by its exact name, then as a path into nested objects (`metadata.abstract`), then
  by its name in any case (`Text`).
- Several text fields are joined by a line break; a row may lack some of them.
- In a row without `text`, the text is everything in `TEXT_PARTS`; `uid` replaces a missing `id`,
  and `LABELS_STAND_INS` replace missing `labels`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.errors import Remedy

TEXT = "text"
TEXT_PARTS = ("title", "abstract", "summary", "description", "content", "body")
LABELS = "labels"
LABELS_STAND_INS = ("label", "target_ind", "subjects", "subject_uris")
ID = "id"
ID_STAND_INS = ("uid", "document_id")
MOST_KEY_SETS = 10_000  # sets of keys to keep the places of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading the rows of a file.

    Args:
        text_field: Field or column of the text, or several that are joined.
        labels_field: Field or column of the labels.
        id_field: Field or column of the id.
        label_separator: Separator of labels in one string; None detects it.
        texts_path: File of the texts, for layouts with separate files.
        labels_path: File of the labels, for layouts with separate files.
    """

    text_field: str | Sequence[str] = TEXT
    labels_field: str = LABELS
    id_field: str = ID
    label_separator: str | None = None
    texts_path: str | Path | None = None
    labels_path: str | Path | None = None

    @property
    def text_names(self) -> tuple[str, ...]:
        """The fields of the text, in the order they are joined."""
        names = (self.text_field,) if isinstance(self.text_field, str) else self.text_field
        return tuple(dict.fromkeys(names)) or (TEXT,)

    def text_columns(self) -> set[str]:
        """Return, in lower case, the fields that a text may be in."""
        return {name.lower() for name in (*self.text_names, TEXT, *TEXT_PARTS)}

    def known_names(self) -> set[str]:
        """Return, in lower case, the top-level fields that a row may be read from."""
        names = {*self.text_names, self.labels_field, self.id_field}
        names |= {name.partition(".")[0] for name in names}
        names |= {*LABELS_STAND_INS, *ID_STAND_INS}
        return {name.lower() for name in names} | self.text_columns()


FieldPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Places:
    """Paths to the values of a row, by what they hold, in the order of preference."""

    text: list[FieldPath]
    text_parts: list[FieldPath]
    labels: list[FieldPath]
    id: list[FieldPath]


@dataclass(slots=True)
class RowFields:
    """Finds text, labels and id in rows, and keeps count of the fields that were used.

    Args:
        options: Names of the fields.
        texts: How many rows took their text from each combination of fields.
        labels: The field of the labels, where one was found.
    """

    options: ReadOptions
    texts: dict[tuple[str, ...], int] = field(default_factory=dict)
    labels: str = ""
    _places: Callable[[tuple[str, ...]], _Places] = field(init=False)

    def __post_init__(self) -> None:
        self._places = functools.lru_cache(MOST_KEY_SETS)(self._find)

    def text_of(self, row: Mapping[str, Any]) -> str:
        """Return the text of a row.

        Raises:
            ValueError: It has none; a remedy may be the second argument.
        """
        places = self._places(tuple(row))
        found = _present(row, places.text) or _present(row, places.text_parts)
        if not found:
            raise self._no_text(row, places)
        for name, value in found.items():
            if not isinstance(value, str):
                raise ValueError(
                    f"the field {name!r} is {kind_of(value)}, expected a string: {value!r:.60}"
                )
        parts = {name: value for name, value in found.items() if value.strip()} or found
        used = tuple(parts)
        self.texts[used] = self.texts.get(used, 0) + 1
        return "\n".join(parts.values())

    def labels_of(self, row: Mapping[str, Any]) -> Any:
        """Return the value of the labels, or None."""
        for name, value in _present(row, self._places(tuple(row)).labels).items():
            self.labels = name
            return value
        return None

    def id_of(self, row: Mapping[str, Any]) -> Any:
        """Return the value of the id, or None."""
        return next(iter(_present(row, self._places(tuple(row)).id).values()), None)

    def never_found(self) -> list[str]:
        """Return those of several text fields that no row had."""
        used = {name.lower() for names in self.texts for name in names}
        names = self.options.text_names
        return [name for name in names if name.lower() not in used] if len(names) > 1 else []

    def _find(self, keys: Sequence[str]) -> _Places:
        options = self.options
        is_default = options.text_names == (TEXT,)
        return _Places(
            _paths(options.text_names, keys),
            _paths(TEXT_PARTS, keys) if is_default else [],
            _paths(_with(options.labels_field, LABELS, LABELS_STAND_INS), keys),
            _paths(_with(options.id_field, ID, ID_STAND_INS), keys),
        )

    def _no_text(self, row: Mapping[str, Any], places: _Places) -> ValueError:
        names = ", ".join(map(repr, self.options.text_names))
        if any(path[-1] in (value_at(row, path[:-1]) or ()) for path in places.text):
            return ValueError(f"the field {names} is null, expected a string")
        return ValueError(
            f"no field {names} (fields: {', '.join(map(str, row)) or 'none'})",
            Remedy("text_field", "name the field of the text", value="…"),
        )


def value_at(row: Mapping[str, Any], path: Iterable[str]) -> Any:
    """Return the value at a path into nested objects, or None."""
    value: Any = row
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def kind_of(value: object) -> str:
    """Return the kind of a JSON value in words."""
    names = {dict: "an object", list: "a list", float: "a decimal number", bool: "a boolean"}
    if value is None:
        return "null"
    return names.get(type(value), f"of type {type(value).__name__}")


def _present(row: Mapping[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    """Return the values that are not null, by the path to them."""
    values = {".".join(path): value_at(row, path) for path in paths}
    return {name: value for name, value in values.items() if value is not None}


def _with(name: str, default: str, stand_ins: Sequence[str]) -> tuple[str, ...]:
    return (name, *stand_ins) if name == default else (name,)


def _paths(names: Iterable[str], keys: Sequence[str]) -> list[FieldPath]:
    return [path for name in names if (path := _path(name, keys)) is not None]


def _path(name: str, keys: Sequence[str]) -> tuple[str, ...] | None:
    """Return the path to a field in a row with these keys, or None if it has no such field."""
    if name in keys:
        return (name,)
    first, *rest = name.split(".")
    if rest and first in keys:
        return (first, *rest)
    lowered = name.lower()
    return next(((key,) for key in keys if str(key).lower() == lowered), None)
