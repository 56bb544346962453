"""Characters of data that must not reach a terminal: the one place that makes them visible.

Control characters (line breaks and tabs aside) can command a terminal, those that change the
direction of writing can fake what is read, and halves of UTF-16 pairs cannot be encoded at all.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str) -> str:
    """Return the text with unsafe characters shown as Python escapes."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def escape_json(document: str) -> str:
    """Return a JSON document with unsafe characters as JSON escapes; its values stay the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
