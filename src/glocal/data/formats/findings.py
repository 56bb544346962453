"""Findings: the facts detected about a file, for the user to check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glocal.data.formats.fields import TEXT, RowFields

EXPECTED = {"encoding": "utf-8", "delimiter": ",", "label_separator": ";"}
CHARACTER_NAMES = {"\t": "tabs"}


@dataclass(slots=True)
class Findings:
    """The facts detected about one file.

    Args:
        format: Its format.
        compression: Its compression; empty for none.
        encoding: Its encoding; empty where it is not a text file.
        delimiter: The delimiter of its columns; empty where there are none.
        label_separator: The detected separator of labels; empty where it was given, or where no
            labels are in one string.
        fields: The fields that its rows were read from; None where it has no fields.
    """

    format: str = ""
    compression: str = ""
    encoding: str = ""
    delimiter: str = ""
    label_separator: str = ""
    fields: RowFields | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a report."""
        fields = self.fields
        return {
            "format": self.format,
            "compression": self.compression,
            "encoding": self.encoding,
            "delimiter": self.delimiter,
            "text": _combinations(fields) if fields else "",
            "labels": fields.labels if fields else "",
            "label_separator": self.label_separator,
        }

    def summary(self) -> str:
        """Return one sentence on all that differs from a plain file; empty if nothing does."""
        parts = []
        if self.encoding not in ("", EXPECTED["encoding"]):
            parts.append(f"encoding {self.encoding.upper()}")
        if self.delimiter not in ("", EXPECTED["delimiter"]) and self.format != "tsv":
            parts.append(f"columns separated by {_shown(self.delimiter)}")
        fields = self.fields
        if fields is not None:
            if set(fields.texts) - {(TEXT,), fields.options.text_names[:1]}:
                parts.append(f"text from {_combinations(fields)}")
            if fields.labels not in ("", fields.options.labels_field):
                parts.append(f"labels from {fields.labels}")
        if self.label_separator not in ("", EXPECTED["label_separator"]):
            parts.append(f"labels separated by {_shown(self.label_separator)}")
        return ", ".join(parts)

    def warnings(self) -> list[str]:
        """Return what the user should look at."""
        missing = self.fields.never_found() if self.fields is not None else []
        return [f"no row has a text in the field {name!r}" for name in missing]


def _combinations(fields: RowFields) -> str:
    """Return the fields of the texts, with the number of rows where rows differ."""
    ranked = sorted(fields.texts.items(), key=lambda item: -item[1])
    names = [" + ".join(used) for used, _ in ranked]
    if len(ranked) == 1:
        return names[0]
    return ", ".join(f"{name} ({n:,})" for name, (_, n) in zip(names, ranked, strict=True))


def _shown(character: str) -> str:
    return CHARACTER_NAMES.get(character, f"'{character}'")
