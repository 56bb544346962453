"""The baselines by name, as `baselines.toml` lists them."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from importlib.util import find_spec
from typing import Any

from glocal.errors import ConfigError, MissingExtraError, no_such
from glocal.lab.baselines.apart import version_apart
from glocal.lab.baselines.baseline import Baseline
from glocal.lab.baselines.tfidf import TextFeatures

PIP = "pip install 'glocal[baselines]'"


@dataclass(frozen=True, kw_only=True)
class BaselineSpec:
    """A baseline of the registry.

    Attributes:
        title: Title in tables.
        about: A description in one line.
        runs: Module of this package and class in it, as `module.Class`.
        package: Distribution of the library.
        imports: Modules that must be importable.
        default: Settings that define the method, where the library has several.
        matched: Settings of the matched run.
        environment: Environment variable that names the Python of an environment with the library,
            where it needs one of its own.
        characters: Whether character n-grams are features beside words (linear baselines).
    """

    title: str
    about: str
    runs: str
    package: str
    imports: Sequence[str]
    default: Mapping[str, Any] = field(default_factory=dict)
    matched: Mapping[str, Any] = field(default_factory=dict)
    environment: str = ""
    characters: bool = False

    @property
    def version(self) -> str:
        """Version of the library; empty when it is not installed."""
        if self.environment:
            return version_apart(self.environment, self.package)
        if any(find_spec(name) is None for name in self.imports):
            return ""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:  # another build under the same import name
            return "unknown version"

    @property
    def install(self) -> str:
        """How to install the library."""
        if not self.environment:
            return PIP
        return (
            f"pip install {self.package} (in an environment of its own, with its Python in "
            f"{self.environment}; docs/guides/benchmark.md says how)"
        )

    def check_installed(self) -> None:
        """Check that the library is installed.

        Raises:
            MissingExtraError: With the `pip install` line.
        """
        if not self.version:
            features = ["scikit-learn"] if "sklearn" in self.imports else []
            needed = " and ".join(dict.fromkeys([self.package, *features]))
            state = "which is not installed" if self.environment else "not all installed"
            raise MissingExtraError(
                f"the baseline {self.title} needs {needed}, {state}; run: {self.install}"
            )


BASELINES = {
    name: BaselineSpec(**spec)
    for name, spec in tomllib.loads(
        resources.files("glocal.lab.baselines").joinpath("baselines.toml").read_text("utf-8")
    ).items()
}


def baseline_spec(name: str) -> BaselineSpec:
    """Return a baseline by its name.

    Raises:
        ConfigError: If there is none, with the nearest one.
    """
    if name not in BASELINES:
        raise ConfigError(no_such("baseline", name, BASELINES))
    return BASELINES[name]


def build_baseline(
    name: str, settings: Mapping[str, Any], *, threads: int = 1, seed: int = 0
) -> Baseline:
    """Return a baseline that is not fitted yet.

    Raises:
        ConfigError: If there is none of this name.
        MissingExtraError: If its library is not installed.
    """
    spec = baseline_spec(name)
    spec.check_installed()
    module, _, class_name = spec.runs.partition(".")
    found = importlib.import_module(f"glocal.lab.baselines.{module}")
    if spec.environment:
        settings = {**settings, "python": spec.environment}
    options: dict[str, Any] = {"threads": threads, "seed": seed}
    if spec.characters:
        options["features"] = TextFeatures(characters=True)
    baseline: Baseline = getattr(found, class_name)(settings, **options)
    return baseline
