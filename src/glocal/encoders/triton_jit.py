"""Triton where it is installed: PyTorch for CPUs comes without it.

Modules with kernels import `triton`, `tl` and `jit` from here and can be imported everywhere; they
look at `triton is None` before they launch a kernel.
"""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

__all__ = ["jit", "tl", "triton"]


def jit(function: Any) -> Any:
    """Compile a kernel when it is first launched; without Triton, leave it as it is."""
    return function if triton is None else triton.jit(function)
