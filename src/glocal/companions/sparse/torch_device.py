"""The device that the sparse model computes on, without importing torch where there is no GPU."""

from __future__ import annotations

import ctypes
import logging
import sys
from typing import TYPE_CHECKING

from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.companions.sparse.device_scorer import DeviceScorer
    from glocal.companions.sparse.sparse_scoring import LinearScorer

logger = logging.getLogger(__name__)


def torch_device(device: str) -> str | None:
    """Return the torch device to compute on; None for numpy.

    Args:
        device: `cpu`, `cuda` or `cuda:N`, or `auto` for a GPU if there is one.

    Raises:
        ConfigError: A GPU was asked for, but there is none.
    """
    if device == "cpu":
        return None
    if _has_gpu():
        return "cuda" if device == "auto" else device
    if device != "auto":
        raise ConfigError(f"the device is {device}, but PyTorch sees no GPU; use cpu or auto")
    return None


def ran_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error of torch says that a device has too little memory."""
    return "out of memory" in str(error)


def scorer_on(device: str, scorer: LinearScorer) -> DeviceScorer | None:
    """Return a scorer whose weights are on a GPU; None for the CPU, or without enough memory."""
    if (found := torch_device(device)) is None:
        return None
    from glocal.companions.sparse import device_scorer

    try:
        return device_scorer.DeviceScorer(scorer, found)
    except RuntimeError as error:
        if not ran_out_of_memory(error):
            raise
        logger.warning("the GPU has too little memory left; words are scored on the CPU")
        return None


def _has_gpu() -> bool:
    """Return whether torch can compute on a GPU; without a driver torch is not imported."""
    if "torch" not in sys.modules:
        try:
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            return False
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def warm_up(device: str | None) -> str | None:
    """Start a GPU and compile what runs on it, which takes seconds; return its name."""
    if device is not None:
        from glocal.companions.sparse.row_kernels import compile_kernels

        compile_kernels(device)
    return device
