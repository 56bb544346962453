"""Annif's own vocabulary files, as rows of a label table.

- TSV without a header: `<uri>`, a tab, the name, and perhaps a tab and the notation.
- CSV with the columns `uri`, `label_en`, `label_fi` and so on, and perhaps `notation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source
from glocal.vocabulary.concept_choice import ConceptChoice

_LABEL = "label_"


def is_annif_tsv(first_line: str) -> bool:
    """Return whether the first line of a TSV file is that of an Annif vocabulary, not a header."""
    return first_line.startswith("<") and ">\t" in first_line


def annif_tsv_rows(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and fields of each concept of a TSV vocabulary."""
    for line, row in source.lines(Problems()):
        if not row.strip():
            continue
        uri, *rest = row.split("\t")
        if not uri.startswith("<") or not uri.endswith(">") or not 1 <= len(rest) <= 2:
            raise source.error(
                f"{row[:60]!r} is not a concept; expected <uri>, a tab and a name, and perhaps a "
                "tab and a notation",
                line,
            )
        yield line, dict(zip(("id", "name", "notation"), (uri[1:-1], *rest), strict=False))


def from_annif_row(row: Mapping[str, Any], choice: ConceptChoice) -> Mapping[str, Any]:
    """Return a row of a CSV vocabulary with the fields of a label table; others as they are."""
    if "uri" not in row or "id" in row:
        return row
    names = [
        (choice.language_rank(column.removeprefix(_LABEL)), column, value)
        for column, value in row.items()
        if column.startswith(_LABEL) and value
    ]
    names.sort()
    wanted = [name for rank, _, name in names if rank <= len(choice.languages)]
    name = names[0][2] if names else ""
    return {
        "id": row["uri"],
        "name": name,
        "notation": row.get("notation") or "",
        "alt_names": [other for other in dict.fromkeys(wanted) if other != name],
    }
