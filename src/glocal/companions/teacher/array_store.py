"""Arrays that are computed once, kept on disk and memory-mapped afterwards.

An entry is a folder of `.npy` files, filled under a temporary name and renamed; one that is missing
a file or has another shape than asked for is built again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.cache import cache_dir, cache_error

__all__ = ["Arrays", "cached_arrays"]

Arrays = dict[str, NDArray[Any]]
Spec = Mapping[str, tuple[type[np.generic], tuple[int, ...]]]


def cached_arrays(kind: str, key: str, spec: Spec, fill: Callable[[Arrays], None]) -> Arrays:
    """Open the arrays of an entry of the cache, or compute them.

    Args:
        kind: The folder of the cache.
        key: The entry; it must change whenever the content would.
        spec: Type and shape of each array.
        fill: Writes their content into arrays of zeros.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    entry = cache_dir(kind) / key
    if (found := _open(entry, spec)) is not None:
        return found
    try:
        with temporary_dir(entry) as folder:
            _write(folder, spec, fill)
            replace_dir(folder, entry)
    except OSError as error:
        if (found := _open(entry, spec)) is not None:  # another process was first
            return found
        raise cache_error(entry.parent, error) from error
    if (found := _open(entry, spec)) is None:
        raise cache_error(entry.parent, OSError("an entry just written cannot be read back"))
    return found


def _write(folder: Path, spec: Spec, fill: Callable[[Arrays], None]) -> None:
    arrays: Arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)
        if np.prod(shape)
        else np.zeros(shape, dtype)  # an empty file cannot be mapped
        for name, (dtype, shape) in spec.items()
    }
    fill(arrays)
    for name, array in arrays.items():
        if isinstance(array, np.memmap):
            array.flush()
        else:
            np.save(folder / f"{name}.npy", array, allow_pickle=False)


def _open(entry: Path, spec: Spec) -> Arrays | None:
    """Map an entry; None when it is missing or damaged."""
    arrays: Arrays = {}
    for name, (dtype, shape) in spec.items():
        path = entry / f"{name}.npy"
        try:
            array = (
                np.load(path, mmap_mode="r", allow_pickle=False)
                if np.prod(shape)
                else np.load(path, allow_pickle=False)
            )
        except (OSError, ValueError, EOFError):
            return None
        if array.shape != shape or array.dtype != dtype:
            return None
        arrays[name] = array
    return arrays
