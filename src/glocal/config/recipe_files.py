"""Recipes from TOML: built-in ones by name or files by path, extended and overridden.

A recipe may name another one that it `extends`; then it holds only the differences. All problems of
a file and of the overrides are reported at once.
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from glocal.config.checking import build_section
from glocal.config.settings import Recipe
from glocal.errors import ConfigError, no_such

_PACKAGE = "glocal.recipes"
PRESETS = (
    "fast",
    "balanced",
    "large",
    "best",
    "auto",
)  # from fastest to slowest, then the automatic choice


def recipe_names() -> list[str]:
    """Return the names of the built-in recipes, presets first.

    Example:
        >>> from glocal import recipe_names
        >>> recipe_names()[:5]
        ['fast', 'balanced', 'large', 'best', 'auto']
    """
    return [*PRESETS, *(name for name in toml_names(_PACKAGE) if name not in PRESETS)]


def load_recipe(name_or_path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Load a built-in recipe by name or a TOML file by path, with `section.key=value` overrides.

    Raises:
        ConfigError: With every problem found in the file and the overrides.

    Example:
        >>> from glocal import load_recipe
        >>> load_recipe("fast", ["train.seed=7"]).train.seed
        7
    """
    mapping = _read_with_parents(str(name_or_path), seen=())
    problems: list[str] = []
    for text in overrides:
        try:
            set_dotted(mapping, *parse_override(text))
        except ConfigError as error:
            problems += error.problems
    return recipe_from_mapping(mapping, source=str(name_or_path), problems=problems)


def recipe_from_mapping(
    mapping: Mapping[str, Any], *, source: str = "recipe", problems: list[str] | None = None
) -> Recipe:
    """Build a recipe from nested mappings, reporting every problem at once."""
    problems = [] if problems is None else problems
    recipe = build_section(Recipe, mapping, "", problems)
    ConfigError.raise_any([f"{source}: {problem}" for problem in problems])
    return typing.cast(Recipe, recipe)


def parse_override(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is TOML, and plain words are strings."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"'{text}' is not of the form section.key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _read_with_parents(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    name = str(Path(name).resolve()) if name.endswith(".toml") else name
    if name in seen:
        raise ConfigError(f"recipes extend one another in a circle: {' → '.join([*seen, name])}")
    mapping = read_toml(name, recipe_names(), package=_PACKAGE, what="recipe")
    parent = mapping.pop("extends", None)
    if parent is None:
        return mapping
    beside = Path(name).parent / str(parent)
    base = str(beside) if name.endswith(".toml") and beside.is_file() else str(parent)
    return _merge(_read_with_parents(base, (*seen, name)), mapping)


def toml_names(package: str) -> list[str]:
    """Return the names of the TOML files in a package."""
    folder = resources.files(package)
    return sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml"))


def read_toml(name: str, names: Sequence[str], *, package: str, what: str) -> dict[str, Any]:
    """Read a TOML file by its name in a package, or by a path ending in .toml.

    Args:
        name: The name or the path.
        names: The names there are.
        package: The package with the named files.
        what: The kind of file, for messages.

    Raises:
        ConfigError: If there is no such file, or it cannot be read.
    """
    try:
        if name in names:
            return tomllib.loads((resources.files(package) / f"{name}.toml").read_text("utf-8"))
        if name.endswith(".toml"):
            return tomllib.loads(Path(name).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the {what} {name}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
    raise ConfigError(f"{no_such(what, name, names)}, and a path must end in .toml")


def _merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
        )
    return merged


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by their dotted names."""
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def set_dotted(mapping: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a value in nested mappings by its dotted name."""
    *sections, key = dotted.split(".")
    for section in sections:
        inner = mapping.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{dotted}': '{section}' is a value, not a section")
        mapping = inner
    mapping[key] = value
