"""Checks of values against the types and limits of the settings; collects every problem."""

from __future__ import annotations

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from glocal.errors import did_you_mean

Section = TypeVar("Section")


def build_section(cls: type, mapping: Any, where: str, problems: list[str]) -> Any:
    """Build a settings dataclass from a mapping, adding to the list of problems.

    Args:
        cls: The dataclass.
        mapping: Its values by name; missing ones take their defaults.
        where: The section's name in messages.
        problems: One sentence for each problem.
    """
    if not isinstance(mapping, Mapping):
        problems.append(f"'{where}' must be a section with keys, not {mapping!r}")
        return cls()
    known = {f.name: f for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        dotted = f"{where}.{key}" if where else key
        if key not in known:
            hint = did_you_mean(key, known) if where else _nearest_setting(key, cls)
            problems.append(f"unknown key '{dotted}'{hint}")
        elif is_dataclass(hints[key]):
            values[key] = build_section(typing.cast(type, hints[key]), value, dotted, problems)
        else:
            values[key] = _check(known[key], hints[key], value, dotted, problems)
    return cls(**values)


def stored_section(cls: type[Section], mapping: Any) -> Section:
    """Build a settings dataclass from values stored in a file.

    Raises:
        ValueError: A value is wrong.
    """
    problems: list[str] = []
    section: Section = build_section(cls, mapping, cls.__name__, problems)
    if problems:
        raise ValueError("; ".join(problems))
    return section


def _nearest_setting(key: str, recipe: type) -> str:
    """Return a hint at a setting for a key without its section: `train.seed` for `seed`."""
    sections = {n: h for n, h in typing.get_type_hints(recipe).items() if is_dataclass(h)}
    inner = [
        f"{name}.{f.name}"
        for name, section in sections.items()
        for f in fields(section)
        if f.name == key
    ]
    if inner:
        return f" (did you mean '{' or '.join(inner)}'?)"
    return did_you_mean(key, [f.name for f in fields(recipe)])


def _default(spec: dataclasses.Field[Any]) -> Any:
    return spec.default_factory() if callable(spec.default_factory) else spec.default


def _check(
    spec: dataclasses.Field[Any],
    hint: Any,
    value: Any,
    dotted: str,
    problems: list[str],
) -> Any:
    converted, default = _convert(hint, value), _default(spec)
    if converted is _WRONG:
        problems.append(f"'{dotted}' must be {_describe(hint)}, not {value!r}")
        return default
    if isinstance(converted, dict):
        for key in converted.keys() - default.keys():
            problems.append(f"unknown key '{dotted}.{key}'{did_you_mean(key, default)}")
        for key, number in converted.items():
            if not (math.isfinite(number) and number >= 0):
                problems.append(f"'{dotted}.{key}' must be a number of at least 0, not {number}")
        return {**default, **converted}
    problem = _out_of_range(spec.metadata, converted)
    if problem:
        problems.append(f"'{dotted}' must be {problem}, not {value!r}")
        return default
    return converted


def _out_of_range(limits: Mapping[str, Any], value: Any) -> str:
    choices = limits.get("choices")
    if choices and value not in choices:
        return f"one of {', '.join(map(str, choices))}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if isinstance(value, int) and abs(value) > _LARGEST:
        return f"at most {_LARGEST}"
    for name, broken in _LIMITS.items():
        if limits.get(name) is not None and broken(value, limits[name]):
            return f"{name.replace('_', ' ')} {limits[name]}"
    return ""


_LIMITS = {"at_least": operator.lt, "above": operator.le, "at_most": operator.gt}
_LARGEST = 2**31 - 1
_WRONG = object()


def _convert(hint: Any, value: Any) -> Any:
    """Return the value as the type asked for, or `_WRONG`."""
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return _WRONG
        items = tuple(_convert(typing.get_args(hint)[0], v) for v in value)
        strings = typing.get_args(hint)[0] is str
        wrong = any(i is _WRONG or (strings and i != v) for i, v in zip(items, value, strict=True))
        return _WRONG if wrong else items
    if origin is dict:
        numbers = isinstance(value, Mapping) and all(_is_number(v) for v in value.values())
        if not numbers:
            return _WRONG
        converted = {str(k): _float(v) for k, v in value.items()}
        return _WRONG if _WRONG in converted.values() else converted
    if hint is float:
        return _float(value) if _is_number(value) else _WRONG
    if hint is int:
        return value if isinstance(value, int) and not isinstance(value, bool) else _WRONG
    if hint is str and _is_number(value):
        return str(value)
    return value if isinstance(value, hint) else _WRONG


def _float(value: int | float) -> Any:
    try:
        return float(value)
    except OverflowError:  # an enormous whole number
        return _WRONG


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _describe(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return f"a list of {'strings' if typing.get_args(hint)[0] is str else 'numbers'}"
    if origin is dict:
        return "a table of numbers"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return names.get(hint, str(hint)) if not isinstance(hint, types.UnionType) else str(hint)
