"""Methods: a recipe or a baseline with its settings, as a row of a table.

Two methods are the same when their settings that differ from the defaults and the version of
their library are the same, whatever they are called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal._version import __version__
from glocal.config import Recipe, load_recipe, recipe_names, recipe_to_mapping
from glocal.errors import ConfigError, no_such
from glocal.lab.baselines.baseline_registry import BASELINES, baseline_spec

BASELINE, RECIPE = "baseline", "recipe"
_TITLE_WIDTH = 40  # characters


@dataclass(frozen=True)
class Method:
    """A recipe or a baseline with its settings.

    Attributes:
        name: Names its folder: letters, digits, dots and dashes.
        title: Shown in tables and plots.
        kind: `baseline` or `recipe`.
        source: Name of the baseline, or name or path of the recipe.
        library: Library and version.
        settings: The whole recipe, or the baseline's settings that are not the library's defaults.
        seed: Random seed.
        overrides: Changes to the recipe, as `section.key=value`.
    """

    name: str
    title: str
    kind: str
    source: str
    library: str
    settings: Mapping[str, Any]
    seed: int = 0
    overrides: Sequence[str] = field(default_factory=list)

    @property
    def identity(self) -> list[Any]:
        """Everything that changes the trained model: settings, seed and library version."""
        if self.kind == BASELINE:
            return [self.library, self.source, dict(self.settings), self.seed]
        # Defaults are omitted, so that an option added later does not change the identity.
        chosen = _without_defaults(self.settings, recipe_to_mapping(Recipe()))
        chosen.pop("description", None)
        return [self.library, chosen]


def _without_defaults(mapping: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            inner = _without_defaults(value, default)
            found |= {key: inner} if inner else {}
        elif value != default:
            found[key] = value
    return found


def recipe_method(
    recipe: Recipe, name: str, *, title: str = "", source: str = "", overrides: Sequence[str] = ()
) -> Method:
    """Make a method from a recipe; its title shows the overrides unless one is given."""
    return Method(
        name,
        title or _recipe_title(name, overrides),
        RECIPE,
        source or name,
        f"glocal {__version__}",
        recipe_to_mapping(recipe),
        recipe.train.seed,
        list(overrides),
    )


def _recipe_title(name: str, overrides: Sequence[str]) -> str:
    changes = ", ".join(re.sub(r"^[^=]*\.", "", text) for text in overrides)  # epochs=4
    title = f"{name} ({changes})" if changes else name
    return title if len(title) <= _TITLE_WIDTH else f"{title[: _TITLE_WIDTH - 2]}…)"


def baseline_method(name: str, *, matched: bool = False, seed: int = 0) -> Method:
    """Make a method from a baseline with its default or its matched setting.

    Raises:
        ConfigError: If there is no such baseline.
        MissingExtraError: If its library is not installed.
    """
    spec = baseline_spec(name)
    spec.check_installed()
    marked = matched and spec.matched != spec.default
    return Method(
        f"{name}-matched" if marked else name,
        f"{spec.title}, matched" if marked else spec.title,
        BASELINE,
        name,
        f"{spec.package} {spec.version}",
        dict(spec.matched if matched else spec.default),
        seed,
    )


def default_recipes() -> list[str]:
    """Return the built-in recipes that fit any data set.

    Recipes for a paper's own data and the demo's are not among them, nor is `auto`, which picks
    one of the others.
    """
    return [n for n in recipe_names() if "-paper-" not in n and n not in ("demo", "auto")]


def choose_methods(
    recipes: Sequence[str] | None = None,
    baselines: Sequence[str] | None = None,
    *,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    seed: int = 0,
) -> list[Method]:
    """Return the methods of a benchmark: baselines with both settings, then recipes.

    Args:
        recipes: Names or paths; by default every built-in one that fits any data set.
        baselines: Names; by default every one whose library is installed.
        overrides: `section.key=value` for every recipe.
        only: Names of the methods to keep; all when empty.
        seed: Random seed of the baselines.

    Raises:
        ConfigError: If names are unknown; lists every problem.
        MissingExtraError: If the library of a baseline asked for is not installed.
    """
    if baselines is None:
        baselines = [name for name, spec in BASELINES.items() if spec.version]
    both = [baseline_method(n, matched=m, seed=seed) for n in baselines for m in (False, True)]
    found = {method.name: method for method in both}
    problems: dict[str, None] = {}  # every problem once, in order
    for source in default_recipes() if recipes is None else recipes:
        name = Path(source).name.removesuffix(".toml")
        try:
            recipe = load_recipe(source, overrides)
            found[name] = recipe_method(recipe, name, source=source, overrides=overrides)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if not problems:
        unknown = [name for name in only if name not in found]
        problems |= dict.fromkeys(no_such("row", name, found) for name in unknown)
    ConfigError.raise_any(list(problems))
    return [method for name, method in found.items() if not only or name in only]
