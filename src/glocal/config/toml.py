"""Recipes as plain mappings and as TOML, plain or with a comment for every setting."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, fields, is_dataclass
from typing import Any

from glocal.config.option import help_texts
from glocal.config.settings import Recipe


def recipe_to_mapping(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as nested plain mappings, every key present."""
    return typing.cast(dict[str, Any], _plain(asdict(recipe)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def to_toml(mapping: Mapping[str, Any]) -> str:
    """Write nested mappings of strings, numbers, booleans and lists as TOML."""
    lines: list[str] = []
    _write_table(mapping, (), lines)
    return "\n".join(lines).strip() + "\n"


def documented_toml(recipe: Any) -> str:
    """Return a recipe as TOML with a comment for every setting."""
    return "\n".join(_documented(recipe, "")).lstrip("\n") + "\n"


def _documented(section: Any, path: str) -> Iterator[str]:
    specs = [(spec, getattr(section, spec.name)) for spec in fields(section)]
    helps = help_texts(type(section))
    if path:
        first_line = (type(section).__doc__ or "").strip().splitlines()[0]
        yield from ("", f"# {first_line}", f"[{path}]")
    for spec, value in specs:
        if not is_dataclass(value) and not isinstance(value, Mapping):
            yield f"{_assignment(spec.name, value)}  # {_help(spec, helps)}"
    for spec, value in specs:
        inner = f"{path}.{spec.name}" if path else spec.name
        if isinstance(value, Mapping):
            yield from ("", f"# {_help(spec, helps)}", f"[{inner}]")
            yield from (_assignment(key, number) for key, number in value.items())
        elif is_dataclass(value):
            yield from _documented(value, inner)


def _assignment(key: str, value: Any) -> str:
    return f"{_key(key)} = {_value(value)}"


def _help(spec: Field[Any], helps: Mapping[str, str]) -> str:
    choices = spec.metadata.get("choices")
    suffix = f" (one of: {', '.join(map(str, choices))})" if choices else ""
    return f"{helps.get(spec.name, '')}{suffix}"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (len(inner) < len(table) or not inner):
        lines += ["", f"[{'.'.join(path)}]"]
    plain = {key: value for key, value in table.items() if key not in inner and value is not None}
    lines += [_assignment(key, value) for key, value in plain.items()]
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
