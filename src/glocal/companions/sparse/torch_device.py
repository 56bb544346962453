"""The device that the sparse model computes on, without importing torch where there is no GPU."""

from __future__ import annotations

import ctypes
import sys

from glocal.errors import ConfigError


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
    if not torch.cuda.is_available():
        return False
    torch.zeros(1, device="cuda")  # starts the GPU, which takes a second
    return True
