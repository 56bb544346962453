"""A recipe as TOML with a comment for every setting; it reads back as the same recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from glocal.config.option import help_texts
from glocal.config.toml import to_toml


def documented_toml(recipe: Any) -> str:
    """Return a recipe as TOML with a comment for every setting."""
    return "\n".join(_table(recipe, "")).lstrip("\n") + "\n"


def _table(section: Any, path: str) -> Iterator[str]:
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
            yield from _table(value, inner)


def _assignment(key: str, value: Any) -> str:
    return to_toml({key: value}).strip()


def _help(spec: Field[Any], helps: Mapping[str, str]) -> str:
    choices = spec.metadata.get("choices")
    suffix = f" (one of: {', '.join(map(str, choices))})" if choices else ""
    return f"{helps.get(spec.name, '')}{suffix}"
