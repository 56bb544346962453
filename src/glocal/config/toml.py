"""Recipes as plain mappings and as TOML."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from glocal.config.settings import Recipe


def recipe_to_mapping(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as nested plain mappings, every key present."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(recipe)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def to_toml(mapping: Mapping[str, Any]) -> str:
    """Write nested mappings of strings, numbers, booleans and lists as TOML."""
    lines: list[str] = []
    _write_table(mapping, (), lines)
    return "\n".join(lines).strip() + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (len(inner) < len(table) or not inner):
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [
        f"{_key(k)} = {_value(v)}" for k, v in table.items() if k not in inner and v is not None
    ]
    for key, value in inner.items():
        _write_table(value, (*path, _key(key)), lines)


def _key(key: str) -> str:
    bare = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if bare else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    return repr(value)


def _string(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    escaped = "".join(
        escapes.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in text
    )
    return f'"{escaped}"'
