"""Settings as dataclass fields: limits beside the default, help text in the class's docstring."""

from __future__ import annotations

import inspect
import re
from dataclasses import field
from typing import Any

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)


def option(
    default: Any,
    *,
    choices: tuple[Any, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """Return a dataclass field with the limits of its values, which are checked on reading."""
    limits = {"choices": choices, "at_least": at_least, "above": above, "at_most": at_most}
    return field(default=default, metadata=limits)


def help_texts(section: type) -> dict[str, str]:
    """Return the help text of each setting, from the `Attributes:` of the section's docstring."""
    _, _, attributes = (inspect.getdoc(section) or "").partition("Attributes:\n")
    found = _ATTRIBUTE.findall(attributes)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in found}
