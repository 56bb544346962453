"""The cache of derived data: token ids, scopes, sparse models, label vectors, built-in sets.

- It lives in `$GLOCAL_CACHE`, or in the platform's user cache folder. Everything in it can be
  deleted at any time and is rebuilt when needed.
- An entry is a folder named by a digest of what determines its content. It is written under a
  temporary name and renamed, so that it is never half there. Its checksums are checked when it is
  read; a damaged entry is built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.checksums import changed_files, read_checksums, write_checksums
from glocal.errors import DataError, GlocalError

logger = logging.getLogger(__name__)

Entry = TypeVar("Entry")
Arrays = dict[str, NDArray[Any]]
Spec = Mapping[str, tuple[type[np.generic], tuple[int, ...]]]

# Raised by readers of entries that are missing or damaged.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, GlocalError)


def cached(
    kind: str,
    key: Sequence[object],
    *,
    write: Callable[[Path], None],
    read: Callable[[Path], Entry],
    about: str = "",
) -> Entry:
    """Open an entry of the cache, building it first where it is missing or damaged.

    Args:
        kind: The folder inside the cache.
        key: JSON values that determine the content.
        write: Fills the folder of a new entry.
        read: Opens an entry; any of the usual errors means that it has to be built again.
        about: The content in words, logged when an entry is read instead of built.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    entry = entry_path(kind, key)
    with contextlib.suppress(*_UNREADABLE):
        found = _read_checked(entry, read)
        if about:
            logger.info("%s: read from the cache (%s)", about, entry)
        return found
    failure = OSError("an entry that was just written cannot be read back")
    try:
        with temporary_dir(entry) as folder:
            write(folder)
            write_checksums(folder)
            replace_dir(folder, entry)
    except OSError as error:
        failure = error
    with contextlib.suppress(*_UNREADABLE):
        return _read_checked(
            entry, read
        )  # also where writing failed: another process may have been first
    raise cache_error(entry.parent, failure) from failure


def is_cached(kind: str, key: Sequence[object]) -> bool:
    """Return whether the cache has an entry whose files are as they were written."""
    with contextlib.suppress(*_UNREADABLE):
        _read_checked(entry_path(kind, key), lambda entry: None)
        return True
    return False


def entry_path(kind: str, key: Sequence[object], *, create: bool = True) -> Path:
    """Return the folder of an entry, which may not exist yet; that of its kind is created."""
    digest = hashlib.blake2b(json.dumps(list(key)).encode(), digest_size=16)
    return cache_dir(kind, create=create) / digest.hexdigest()


def _read_checked(entry: Path, read: Callable[[Path], Entry]) -> Entry:
    """Read an entry whose files are as they were written.

    Raises:
        ValueError: They are not, or they have no checksums.
    """
    stored = read_checksums(entry)
    if stored is None:
        raise ValueError(f"{entry} has no checksums")
    if changed := changed_files(entry, stored):
        logger.warning("%s is damaged (%s) and is built again", entry, ", ".join(changed))
        raise ValueError(f"{changed} changed")
    return read(entry)


def cached_arrays(
    kind: str, key: Sequence[object], spec: Spec, fill: Callable[[Arrays], None]
) -> Arrays:
    """Open memory-mapped arrays of the cache, computing them first where need be.

    Args:
        kind: The folder inside the cache.
        key: JSON values that determine the content.
        spec: Type and shape of each array.
        fill: Writes the content into arrays of zeros.

    Raises:
        DataError: The cache folder cannot be written to.
    """

    def write(folder: Path) -> None:
        arrays: Arrays = {}
        for name, (dtype, shape) in spec.items():
            path = folder / f"{name}.npy"
            if np.prod(shape):
                arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
            else:  # an empty file cannot be mapped
                arrays[name] = np.zeros(shape, dtype)
                np.save(path, arrays[name], allow_pickle=False)
        fill(arrays)
        for array in arrays.values():
            if isinstance(array, np.memmap):
                array.flush()

    def read(entry: Path) -> Arrays:
        arrays: Arrays = {}
        for name, (dtype, shape) in spec.items():
            mode: Any = "r" if np.prod(shape) else None
            array = np.load(entry / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name} has the shape {array.shape}; expected {shape}")
            arrays[name] = array
        return arrays

    return cached(kind, key, write=write, read=read)


def cache_dir(*parts: str, create: bool = True) -> Path:
    """Return the cache folder, or a folder inside it.

    Args:
        parts: Names of nested folders inside the cache.
        create: Create the folder if it does not exist.

    Raises:
        DataError: The folder cannot be created.
    """
    folder = _root().joinpath(*parts)
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cache_error(folder, error) from error
    return folder


def cache_error(folder: Path, error: OSError) -> DataError:
    """Describe a failure to write under the cache folder and how to fix it."""
    return DataError(
        f"cannot write to the cache folder ({error.strerror or error}); free some space there, or "
        "set GLOCAL_CACHE to a folder that is writable and has room",
        path=folder,
    )


def _root() -> Path:
    if chosen := os.environ.get("GLOCAL_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "glocal"
