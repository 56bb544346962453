"""The scikit-learn estimator contract, without scikit-learn: parameters, tags, errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from glocal.config import Recipe, load_recipe, recipe_from_mapping, recipe_to_mapping
from glocal.config.recipe_files import flatten, set_dotted
from glocal.errors import ConfigError, GlocalError, did_you_mean


class NotFittedError(GlocalError, ValueError, AttributeError):
    """A tagger was asked for predictions before `fit` or `load`.

    Where scikit-learn is in use, the error raised is also scikit-learn's `NotFittedError`.
    """


class Estimator:
    """Base of estimators: `__init__` only stores parameters, which can be read and changed."""

    recipe: str | Path | Recipe
    overrides: Mapping[str, Any] | None
    threshold: float | None
    k: int
    random_state: int | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of `__init__`, as they were given.

        Example:
            >>> Tagger(k=3).get_params()["k"]
            3
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters of `__init__`; `overrides__NAME` changes one setting of the recipe.

        Raises:
            ConfigError: When a name is not one of them.

        Example:
            >>> Tagger("fast").set_params(k=3, overrides__train__seed=7)
            Tagger(recipe='fast', overrides={'train.seed': 7}, k=3)
        """
        valid, prefix = list(self._defaults()), "overrides__"
        settings = {name: params.pop(name) for name in list(params) if name.startswith(prefix)}
        ConfigError.raise_any(
            [
                f"{type(self).__name__} has no parameter '{name}'{did_you_mean(name, valid)}; "
                f"it has {', '.join(valid)}"
                for name in params
                if name not in valid
            ]
        )
        vars(self).update(params)
        if settings:
            changed = {k.removeprefix(prefix).replace("__", "."): v for k, v in settings.items()}
            self.overrides = {**(self.overrides or {}), **changed}
        return self

    def _resolve(self) -> Recipe:
        """Check the parameters and return the recipe they describe."""
        problems = []
        if not isinstance(self.k, int) or self.k < 1:
            problems.append(f"k must be a whole number from 1 on, not {self.k!r}")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            problems.append(f"threshold must be between 0 and 1, not {self.threshold!r}")
        ConfigError.raise_any(problems)
        seed = {} if self.random_state is None else {"train.seed": int(self.random_state)}
        return overridden(self.recipe, {**(self.overrides or {}), **seed})

    def __repr__(self) -> str:
        shown = {name: _shown(getattr(self, name)) for name in self._defaults()}
        changed = [
            f"{name}={shown[name]}"
            for name, default in self._defaults().items()
            if shown[name] != repr(default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return "predictor_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            # No `classifier`: scikit-learn would then look for one class a text in `y`.
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
            no_validation=True,
        )

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}


def _shown(value: Any) -> str:
    """Return a value in one line: all settings of a recipe would fill a page."""
    return f"<{value.system} recipe>" if isinstance(value, Recipe) else repr(value)


def raise_not_fitted(message: str) -> NoReturn:
    """Raise an error that scikit-learn also knows, where it is in use."""
    theirs = sys.modules.get("sklearn.exceptions")
    if theirs is None:  # then nobody can be waiting for scikit-learn's exception
        raise NotFittedError(message)
    both = type("NotFittedError", (NotFittedError, theirs.NotFittedError), {})
    raise both(message)


def overridden(recipe: str | Path | Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """Return a recipe, given itself or by name or path, with dotted or nested overrides.

    Raises:
        ConfigError: With every problem found.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    mapping = recipe_to_mapping(recipe)
    for name, value in flatten(overrides):
        set_dotted(mapping, name, value)  # unknown names stay, to be reported
    return recipe_from_mapping(mapping, source="overrides")
