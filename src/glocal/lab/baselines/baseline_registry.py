"""The baselines by name: which library each comes from, its default and its matched setting.

The default is the library's own, as far as it goes for texts with several labels. The matched
setting is the same for all linear ones, squared hinge with C = 1 solved to a tolerance of 0.1, so
that rows differ in the method and not in the loss; for fastText it is a longer run.
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

_BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
_NAPKIN = {"loss": "l2", "liblinear_c": 1.0, "liblinear_eps": 0.1}
_PRUNED = {"prune": 0.01}


@dataclass(frozen=True)
class BaselineSpec:
    """A baseline that can be asked for.

    Attributes:
        name: On the command line.
        title: In tables.
        about: One line.
        module: Of this package, and the class in it.
        package: The library's distribution.
        imports: What must be importable.
        default: Settings that make the method what it is, where the library has several.
        matched: The settings of the matched run.
    """

    name: str
    title: str
    about: str
    module: tuple[str, str]
    package: str
    imports: tuple[str, ...]
    default: Mapping[str, Any] = field(default_factory=dict)
    matched: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, *, matched: bool) -> dict[str, Any]:
        """The settings that are not the library's own."""
        return dict(self.matched if matched else self.default)

    @property
    def has_matched(self) -> bool:
        """Whether the matched setting is another than the default."""
        return self.matched != self.default

    @property
    def version(self) -> str:
        """Of the library; empty when it is not installed."""
        if any(find_spec(name) is None for name in self.imports):
            return ""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:  # another build under the same import name
            return "unknown version"

    def check_installed(self) -> None:
        """Refuse at once what could only fail later.

        Raises:
            MissingExtraError: With the `pip install` line.
        """
        if not self.version:
            features = ["scikit-learn"] if "sklearn" in self.imports else []
            needed = " and ".join(dict.fromkeys([self.package, *features]))
            raise MissingExtraError(
                f"the baseline '{self.name}' needs {needed}, not all installed; run: {PIP}"
            )


_SPECS = (
    BaselineSpec(
        "parabel",
        "Parabel",
        "three balanced 2-means label trees",
        ("omikuji_trees", "OmikujiTrees"),
        "omikuji",
        ("omikuji", "sklearn"),
    ),
    BaselineSpec(
        "bonsai",
        "Bonsai",
        "three shallow label trees of 100 branches",
        ("omikuji_trees", "OmikujiTrees"),
        "omikuji",
        ("omikuji", "sklearn"),
        default=_BONSAI,
        matched=_BONSAI,
    ),
    BaselineSpec(
        "plt",
        "PLT",
        "a probabilistic label tree",
        ("napkinxc_plt", "NapkinTree"),
        "napkinxc",
        ("napkinxc", "sklearn"),
        matched=_NAPKIN,
    ),
    BaselineSpec(
        "ovr",
        "one-vs-rest",
        "a linear classifier for each label",
        ("napkinxc_plt", "NapkinOneVsRest"),
        "napkinxc",
        ("napkinxc", "sklearn"),
        matched=_NAPKIN,
    ),
    BaselineSpec(
        "svm",
        "linear SVM",
        "a linear support vector machine for each label",
        ("linear_svm", "LinearSVM"),
        "scikit-learn",
        ("sklearn",),
        default=_PRUNED,
        matched={**_PRUNED, "C": 1.0, "tol": 0.1},
    ),
    BaselineSpec(
        "fasttext",
        "fastText",
        "the mean of word vectors, one binary loss for each label",
        ("fasttext_ova", "FastText"),
        "fasttext-community",
        ("fasttext",),
        matched={"lr": 0.5, "epoch": 25},
    ),
)

BASELINES = {spec.name: spec for spec in _SPECS}


def baseline_spec(name: str) -> BaselineSpec:
    """A baseline by its name.

    Raises:
        ConfigError: When there is none, with the nearest one.
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
    """A baseline that is not fitted yet.

    Raises:
        ConfigError: When there is none of this name.
        MissingExtraError: When its library is not installed.
    """
    spec = baseline_spec(name)
    spec.check_installed()
    module, class_name = spec.module
    baseline: Baseline = getattr(
        importlib.import_module(f"glocal.lab.baselines.{module}"), class_name
    )(settings, threads=threads, seed=seed)
    return baseline
