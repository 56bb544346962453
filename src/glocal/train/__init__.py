"""Training: one loop for every system and every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.train.listener import TrainListener
    from glocal.train.run import FitResult, fit

__all__ = ["FitResult", "TrainListener", "fit"]

_MODULES = {"fit": "run", "FitResult": "run", "TrainListener": "listener"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
