"""The label space, frequency bands and the hierarchy of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
