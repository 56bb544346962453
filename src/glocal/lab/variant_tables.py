"""Tables of variants, as TOML; `glocal ablate` trains them.

    title = "…"              recipe = "me-xml"       parts = false
    published = "where the published numbers come from"
    [settings]               for every variant
    [[variants]]
    name = "1-expert"        title = "1 expert"      settings = { experts = ["D-last"] }
    published = { combined = [P@1, P@3, P@5] }

- a built-in table has a name; a table of your own has a path ending in .toml;
- settings of the user go to every variant; a setting in which the variants differ cannot be given,
  since rows would no longer be what they are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.config import Recipe, load_recipe, parse_override
from glocal.config.expert_names import check_expert_names
from glocal.config.recipe_files import flatten, read_toml, toml_names
from glocal.errors import ConfigError, did_you_mean, no_such
from glocal.lab.experiment.jobs import Conditions, Job, Splits
from glocal.lab.experiment.methods import recipe_method
from glocal.lab.experiment.runner import Runner

_PACKAGE = "glocal.recipes.tables"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # names become folders
_TABLE_KEYS = {"title", "recipe", "parts", "published", "settings", "variants"}
_VARIANT_KEYS = {"name", "title", "settings", "published"}


@dataclass(frozen=True)
class Variant:
    """One row of a table.

    Attributes:
        name: Names its folder: letters, digits, dots and dashes.
        title: Title of the row.
        settings: Settings of the recipe that the variant changes, by dotted key.
        published: P@1, P@3 and P@5 in per cent by part (an expert's name or `combined`).
    """

    name: str
    title: str
    settings: Mapping[str, Any]
    published: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class VariantTable:
    """Variants that are trained under one budget and compared.

    Attributes:
        name: Names its files.
        title: Title of the table.
        recipe: The recipe the variants start from.
        variants: The rows.
        settings: Settings of every variant by dotted key, unless the user gives others.
        parts: Whether each expert also has a row.
        published: Source of the published numbers.
    """

    name: str
    title: str
    recipe: str
    variants: tuple[Variant, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: bool = False
    published: str = ""


def table_names() -> list[str]:
    """Return the names of the built-in tables."""
    return toml_names(_PACKAGE)


def load_table(name_or_path: str) -> VariantTable:
    """Load a built-in table by name, or one of the user's own by path.

    Raises:
        ConfigError: If there is no such table; or with every problem of the file.
    """
    mapping = read_toml(name_or_path, table_names(), package=_PACKAGE, what="table")
    problems: list[str] = []
    table = _table(Path(name_or_path).name.removesuffix(".toml"), mapping, problems)
    ConfigError.raise_any([f"{name_or_path}: {problem}" for problem in problems])
    return table


def select(variants: Sequence[Variant], names: Sequence[str]) -> list[Variant]:
    """Return the variants of these names, in the table's order; all of them without names.

    Raises:
        ConfigError: If no variant has a name, with the nearest one.
    """
    known = [variant.name for variant in variants]
    ConfigError.raise_any([no_such("variant", name, known) for name in names if name not in known])
    return [variant for variant in variants if not names or variant.name in names]


def resolve(
    table: VariantTable, overrides: Sequence[str] = (), *, recipe: str | None = None
) -> dict[str, Recipe]:
    """Return the recipe of every variant, by name.

    Args:
        table: The variants.
        overrides: `section.key=value` for every variant.
        recipe: Another recipe to start from.

    Raises:
        ConfigError: With every problem of every variant.
    """
    _check_overrides(table, overrides)
    problems: list[str] = []
    recipes = {}
    for variant in table.variants:
        settings = [*_as_overrides(table.settings), *overrides, *_as_overrides(variant.settings)]
        try:
            found = load_recipe(recipe or table.recipe, settings)
            check_expert_names(found.experts)
            recipes[variant.name] = found
        except ConfigError as error:
            problems += [p for p in error.problems if p not in problems]
    ConfigError.raise_any(problems)
    return recipes


def variant_runner(
    table: VariantTable,
    recipes: Mapping[str, Recipe],
    splits: Splits,
    conditions: Conditions,
    *,
    out: Path,
    reuse: Sequence[Path] = (),
) -> Runner:
    """Make the runner that trains a table's variants, each in OUT/runs/NAME."""
    jobs = [
        Job.make(
            recipe_method(recipes[variant.name], variant.name, title=variant.title),
            splits,
            conditions,
            out / "runs" / variant.name,
        )
        for variant in table.variants
    ]
    return Runner(jobs, out=out, reuse=reuse)


def _check_overrides(table: VariantTable, overrides: Sequence[str]) -> None:
    theirs = {key for variant in table.variants for key in variant.settings}
    problems = []
    for text in overrides:
        key, _ = parse_override(text)
        if any(key == own or own.startswith(f"{key}.") for own in theirs):
            problems.append(
                f"'{key}' cannot be set for all variants of '{table.name}': it is what they differ "
                "in; choose some of the variants, or write a table of your own"
            )
    ConfigError.raise_any(problems)


def _as_overrides(settings: Mapping[str, Any]) -> list[str]:
    # JSON of strings, numbers, booleans and lists is TOML as well.
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]


# --- reading ---------------------------------------------------------------------------------


def _table(name: str, mapping: Mapping[str, Any], problems: list[str]) -> VariantTable:
    problems += _unknown_keys(mapping, _TABLE_KEYS, "")
    rows = mapping.get("variants")
    if not isinstance(rows, list) or not rows:
        problems.append("a table needs at least one [[variants]]")
        rows = []
    variants = tuple(
        _variant(_mapping(row, f"variant {number}", problems), number, problems)
        for number, row in enumerate(rows, 1)
    )
    names = [variant.name for variant in variants]
    for repeated in sorted({n for n in names if names.count(n) > 1}):
        problems.append(f"two variants are called '{repeated}'")
    return VariantTable(
        name,
        str(mapping.get("title", name)),
        str(mapping.get("recipe", "glocalxml")),
        variants,
        settings=dict(flatten(_mapping(mapping.get("settings", {}), "'settings'", problems))),
        parts=bool(mapping.get("parts", False)),
        published=str(mapping.get("published", "")),
    )


def _variant(row: Mapping[str, Any], number: int, problems: list[str]) -> Variant:
    where = f"variant {number}: "
    problems += _unknown_keys(row, _VARIANT_KEYS, where)
    name = row.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(
            f"{where}'name' must be letters, digits, dots and dashes, as it names a folder, "
            f"not {name!r}"
        )
    settings = _mapping(row.get("settings", {}), f"{where}'settings'", problems)
    published = _published(row.get("published", {}), f"{where}'published'", problems)
    return Variant(str(name), str(row.get("title", name)), dict(flatten(settings)), published)


def _mapping(value: Any, what: str, problems: list[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    problems.append(f"{what} must be a table such as {{ key = 1 }}, not {value!r}")
    return {}


def _published(value: Any, what: str, problems: list[str]) -> Mapping[str, Sequence[float]]:
    scores = _mapping(value, what, problems)
    for part, numbers in scores.items():
        if not (isinstance(numbers, list) and all(isinstance(n, int | float) for n in numbers)):
            problems.append(
                f"{what} of '{part}' must be a list of numbers (P@1, P@3, P@5), not {numbers!r}"
            )
    return scores


def _unknown_keys(mapping: Mapping[str, Any], known: set[str], where: str) -> list[str]:
    return [
        f"{where}unknown key '{key}'{did_you_mean(key, sorted(known))}"
        for key in mapping
        if key not in known
    ]
