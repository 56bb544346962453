"""JSON lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from glocal.data.corpus import Document
from glocal.data.formats.rows import Problems, ReadOptions, documents_from_rows
from glocal.data.formats.source import Source

EXAMPLE = '{"id": "1", "text": "…", "labels": ["a", "b"]}'


def read_jsonl(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream the documents of a file with one JSON object per line; blank lines are ignored."""
    rows = iter_objects(source, problems, example=EXAMPLE)
    return documents_from_rows(rows, options, problems, path=source.name)


def iter_objects(
    source: Source, problems: Problems, *, example: str
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the line and the fields of each JSON object.

    Args:
        source: The file.
        problems: Collects or raises the errors of lines that are not an object.
        example: A valid line, shown in messages.
    """
    for line, text in source.lines(problems):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            problems.report(
                source.error(f"not valid JSON ({_place(error)}); expected {example}", line)
            )
            continue
        if isinstance(row, dict):
            yield line, row
        elif isinstance(row, list) and line == 1:
            # A JSON array is one value over the whole file: no row of it can be used.
            raise source.error(
                f"the file is a JSON array; expected one object per line, such as {example}; "
                "convert it: jq -c '.[]'",
                line,
            )
        else:
            problems.report(
                source.error(f"expected a JSON object such as {example}, got {text:.60}", line)
            )


def _place(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return str(error)
