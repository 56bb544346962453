"""Values of options that need no validator.

Typer 0.29 and later check values with pydantic, which takes a tenth of a second to import: a fifth
of the start of `glocal predict`. Plain values (strings, paths, numbers within their limits) are
converted here instead. Everything else, and so every message about a wrong value, is left to typer.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args, get_origin

_NOT_PLAIN = object()


def skip_validator(parameter: Any) -> Any:
    """Let a parameter of a command take plain values as they are; return it."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:  # before typer 0.29
        return parameter
    annotation, info = described.annotation, described.parameter_info
    several = parameter.multiple or parameter.nargs == -1
    process = type(parameter).process_value  # a copied parameter may have one of its own

    def process_value(context: Any, value: Any) -> Any:
        plain = _plain(annotation, info, value, several=several)
        if plain is _NOT_PLAIN or (parameter.required and parameter.value_is_missing(plain)):
            return process(parameter, context, value)
        return (
            plain if parameter.callback is None else parameter.callback(context, parameter, plain)
        )

    parameter.process_value = process_value
    return parameter


def _plain(annotation: Any, info: Any, value: Any, *, several: bool) -> Any:
    if value is None:
        return () if several else None
    if get_origin(annotation) is list:
        if not isinstance(value, list | tuple):
            return _NOT_PLAIN
        (kind,) = get_args(annotation)
        found = [_plain_item(kind, info, item) for item in value]
        return _NOT_PLAIN if _NOT_PLAIN in found else found
    return _NOT_PLAIN if several else _plain_item(annotation, info, value)


def _plain_item(kind: Any, info: Any, value: Any) -> Any:
    if info.parser is not None or info.clamp:
        return _NOT_PLAIN
    if kind is str and isinstance(value, str):
        return value
    if kind is Path and isinstance(value, str | Path):
        return _plain_path(info, value)
    if kind in (int, float):
        return _plain_number(kind, info, value)
    return _NOT_PLAIN


def _plain_path(info: Any, value: str | Path) -> Any:
    checked = info.exists or info.writable or info.resolve_path or info.path_type is not None
    if checked or info.allow_dash or not (info.file_okay and info.dir_okay):
        return _NOT_PLAIN
    unreadable = info.readable and os.path.exists(value) and not os.access(value, os.R_OK)
    return _NOT_PLAIN if unreadable else Path(value)


def _plain_number(kind: type[int | float], info: Any, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | kind):
        return _NOT_PLAIN
    if isinstance(value, str) and not value.isascii():
        return _NOT_PLAIN
    try:
        number = kind(value)
    except ValueError:
        return _NOT_PLAIN
    low = info.min is None or number >= info.min
    return number if low and (info.max is None or number <= info.max) else _NOT_PLAIN
