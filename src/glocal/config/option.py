"""Settings as dataclass fields: each carries its help text and the values it may take."""

from __future__ import annotations

from dataclasses import field
from typing import Any

__all__ = ["option"]


def option(
    default: Any,
    doc: str,
    *,
    choices: tuple[Any, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """Return a dataclass field with its help text and limits, which are checked on reading."""
    limits = {"choices": choices, "at_least": at_least, "above": above, "at_most": at_most}
    metadata = {"doc": doc, **limits}
    return field(default=default, metadata=metadata)
