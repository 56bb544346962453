"""What people use today, through maintained libraries: one file for each library.

`registry.BASELINES` lists them; each is fitted on a corpus and the label space of our own models,
and answers with `Predictions` in that space, so that everything is measured by the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.baselines.base import Baseline, LinearBaseline
    from glocal.baselines.registry import BASELINES, BaselineSpec, baseline_spec, build_baseline

_MODULES = {
    "BASELINES": "registry",
    "Baseline": "base",
    "BaselineSpec": "registry",
    "LinearBaseline": "base",
    "baseline_spec": "registry",
    "build_baseline": "registry",
}

__all__ = [
    "BASELINES",
    "Baseline",
    "BaselineSpec",
    "LinearBaseline",
    "baseline_spec",
    "build_baseline",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
