"""The baselines by name: their libraries, and their default and matched settings.

The default setting is the library's own, as far as it works for texts with several labels. The
matched setting is the same for all linear ones, squared hinge with C = 1 solved to a tolerance of
0.1, so that rows differ in the method and not in the loss; for fastText it is a longer run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from glocal.errors import ConfigError, MissingExtraError, did_you_mean
from glocal.lab.baselines.baseline import Baseline

__all__ = ["BASELINES", "BaselineSpec", "baseline_spec", "build_baseline"]

PIP = "pip install 'glocal[baselines]'"

# The distribution and the imports that each module of this package needs.
_NEEDS = {
    "omikuji_trees": ("omikuji", ("omikuji", "sklearn")),
    "napkinxc_plt": ("napkinxc", ("napkinxc", "sklearn")),
    "linear_svm": ("scikit-learn", ("sklearn",)),
    "fasttext_ova": ("fasttext-community", ("fasttext",)),
}
_BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
_NAPKIN = {"loss": "l2", "liblinear_c": 1.0, "liblinear_eps": 0.1}
_PRUNED = {"prune": 0.01}
_FASTTEXT = {"lr": 0.5, "epoch": 25}


@dataclass(frozen=True)
class BaselineSpec:
    """A baseline of the registry.

    Attributes:
        title: Title in tables.
        about: A description in one line.
        path: Module of this package and class in it, as `module.Class`.
        default: Settings that define the method, where the library has several.
        matched: Settings of the matched run.
    """

    title: str
    about: str
    path: str
    default: Mapping[str, Any] = field(default_factory=dict)
    matched: Mapping[str, Any] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """Distribution of the library."""
        return _NEEDS[self.path.partition(".")[0]][0]

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that must be importable."""
        return _NEEDS[self.path.partition(".")[0]][1]

    @property
    def version(self) -> str:
        """Version of the library; empty when it is not installed."""
        if any(find_spec(name) is None for name in self.imports):
            return ""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:  # another build under the same import name
            return "unknown version"

    def check_installed(self) -> None:
        """Check that the library is installed.

        Raises:
            MissingExtraError: With the `pip install` line.
        """
        if not self.version:
            features = ["scikit-learn"] if "sklearn" in self.imports else []
            needed = " and ".join(dict.fromkeys([self.package, *features]))
            raise MissingExtraError(
                f"the baseline {self.title} needs {needed}, not all installed; run: {PIP}"
            )


BASELINES = {
    "parabel": BaselineSpec(
        "Parabel", "three balanced 2-means label trees", "omikuji_trees.OmikujiTrees"
    ),
    "bonsai": BaselineSpec(
        "Bonsai",
        "three shallow label trees of 100 branches",
        "omikuji_trees.OmikujiTrees",
        default=_BONSAI,
        matched=_BONSAI,
    ),
    "plt": BaselineSpec(
        "PLT", "a probabilistic label tree", "napkinxc_plt.NapkinTree", matched=_NAPKIN
    ),
    "ovr": BaselineSpec(
        "one-vs-rest",
        "a linear classifier for each label",
        "napkinxc_plt.NapkinOneVsRest",
        matched=_NAPKIN,
    ),
    "svm": BaselineSpec(
        "linear SVM",
        "a linear support vector machine for each label",
        "linear_svm.LinearSVM",
        default=_PRUNED,
        matched={**_PRUNED, "C": 1.0, "tol": 0.1},
    ),
    "fasttext": BaselineSpec(
        "fastText",
        "the mean of word vectors, one binary loss for each label",
        "fasttext_ova.FastText",
        matched=_FASTTEXT,
    ),
}


def baseline_spec(name: str) -> BaselineSpec:
    """Return a baseline by its name.

    Raises:
        ConfigError: If there is none, with the nearest one.
    """
    if name not in BASELINES:
        raise ConfigError(
            f"there is no baseline '{name}'{did_you_mean(name, BASELINES)}; "
            f"there are {', '.join(BASELINES)}"
        )
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
    module, _, class_name = spec.path.partition(".")
    found = importlib.import_module(f"glocal.lab.baselines.{module}")
    baseline: Baseline = getattr(found, class_name)(settings, threads=threads, seed=seed)
    return baseline
