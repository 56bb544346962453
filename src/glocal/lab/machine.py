"""The machine: its processor and GPU, and the memory this process has held."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glocal._version import __version__


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe_machine() -> dict[str, Any]:
    """Describe processor, GPU and software."""
    torch = torch_with_gpu()
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "glocal": __version__,
    }


def peak_memory() -> int | None:
    """Return the most bytes this process has held in memory; None where the system does not say.

    On Linux from VmHWM, since `ru_maxrss` starts from the memory of the parent process there.
    """
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def gpu_memory() -> int | None:
    """Return the most bytes PyTorch has held on the GPU; None without one."""
    torch = torch_with_gpu()
    return int(torch.cuda.max_memory_allocated()) if torch else None


class PeakMemory:
    """Most bytes held beyond those held at the start; None where the system does not say.

    Args:
        device: A torch device, whose memory is watched.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.bytes: int | None = None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch while the block runs."""
        if self.device.type == "cuda":
            cuda = sys.modules["torch"].cuda
            cuda.reset_peak_memory_stats(self.device)
            before = cuda.memory_allocated(self.device)
            yield
            self.bytes = cuda.max_memory_allocated(self.device) - before
            return
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(
                0
            )  # glibc: freed memory that is used again would not show
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: resets VmHWM
        except OSError:
            yield
            return
        held = _status("VmRSS")
        yield
        peak = _status("VmHWM")
        self.bytes = None if held is None or peak is None else max(0, peak - held)


def torch_with_gpu() -> Any:
    """Return the module, if it is loaded and has a GPU; else None."""
    torch = sys.modules.get("torch")  # baselines do not load it
    return torch if torch is not None and torch.cuda.is_available() else None


def _status(name: str) -> int | None:
    value = _field("/proc/self/status", name)
    return int(value.split()[0]) * 1024 if value else None  # in kB


def _field(path: str, name: str) -> str:
    """Return a value of a file of `name: value` lines; empty where there is none."""
    lines = Path(path).read_text().splitlines() if Path(path).is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
