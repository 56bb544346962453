"""Labels in one string: lists in any notation, and the separator of plain names.

`;` and `|` hardly occur in names, so a few uses show that they separate labels. A comma does occur
in names ("Agriculture, forestry and fishing"); it separates labels if no space follows it, or if
most of the parts it makes occur in several different strings, as the parts of a name do not.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

DEFAULT = ";"
FEW = 0.05  # share of strings with a separator that is no chance
MOST_LIST_CHARACTERS = 100_000
TIGHT_COMMA = re.compile(r"\S,\S")
URIS = re.compile(r"(?:<[^<>\s]+>\s*)+")


def listed(cell: str) -> list[object] | None:
    """Return the values of a list in JSON, in Python or of URIs in `<>`; None if it is none."""
    stripped = cell.strip()
    if stripped.startswith("<") and URIS.fullmatch(stripped):
        return [uri.strip("<>") for uri in stripped.split()]
    if not (stripped.startswith("[") and stripped.endswith("]")):
        return None
    try:
        values = json.loads(stripped)
    except (ValueError, RecursionError):
        values = _python_list(stripped)
    return values if isinstance(values, list) else None


def _python_list(text: str) -> object:
    """Return a list as pandas writes it to CSV: `['law', 'tax']`."""
    if len(text) > MOST_LIST_CHARACTERS:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def detect_separator(cells: Sequence[str]) -> str:
    """Return the separator of the labels in these strings, `;` if none stands out.

    The result is empty if there are no such strings.
    """
    names = [cell for cell in cells if cell.strip() and listed(cell) is None]
    if not names:
        return ""
    for separator in (";", "|"):
        if sum(separator in cell for cell in names) > FEW * len(names):
            return separator
    return "," if commas_separate(names) else DEFAULT


def commas_separate(cells: Sequence[str]) -> bool:
    """Return whether the commas in these strings separate labels rather than parts of names."""
    inside = [cell for cell in cells if "," in cell.strip()]
    if len(inside) <= FEW * len(cells):
        return False
    tight = sum(TIGHT_COMMA.search(cell) is not None for cell in inside)
    return 2 * tight > len(inside) or parts_recur(cells, ",")


def parts_recur(cells: Iterable[str], separator: str) -> bool:
    """Return whether the parts around a separator mostly occur in several different strings."""
    parts = [_parts(cell, separator) for cell in set(cells)]
    counts = Counter(part for cell in parts for part in cell)
    split = [part for cell in parts if len(cell) > 1 for part in cell]
    return bool(split) and 2 * sum(counts[part] > 1 for part in split) >= len(split)


def _parts(cell: str, separator: str) -> set[str]:
    return {part for piece in cell.split(separator) if (part := piece.strip())}
