"""The label space, frequency bands and the hierarchy of labels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.labels.bands import Band, Bands
    from glocal.labels.hierarchy import Hierarchy
    from glocal.labels.space import LabelSpace

_MODULES = {
    "Band": "bands",
    "Bands": "bands",
    "Hierarchy": "hierarchy",
    "LabelSpace": "space",
}

__all__ = ["Band", "Bands", "Hierarchy", "LabelSpace"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
