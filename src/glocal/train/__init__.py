"""Training: one loop for every system and every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.train.listener import TrainListener
    from glocal.train.run import FitResult, fit

__all__ = ["FitResult", "TrainListener", "fit"]

_MODULES = {"fit": "run", "FitResult": "run", "TrainListener": "listener"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
