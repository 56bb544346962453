"""Where derived data is kept: `$GLOCAL_CACHE`, or the platform's user cache folder.

Everything under it can be deleted at any time; it is rebuilt when needed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from glocal.errors import DataError

__all__ = ["cache_dir", "cache_error"]


def cache_dir(*parts: str, create: bool = True) -> Path:
    """Return the cache folder, or a folder inside it.

    Args:
        parts: Names of nested folders inside the cache.
        create: Make the folder if it does not exist.

    Raises:
        DataError: The folder cannot be made.
    """
    folder = _root().joinpath(*parts)
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cache_error(folder, error) from error
    return folder


def cache_error(folder: Path, error: OSError) -> DataError:
    """Describe a failure to write under the cache folder and how to mend it."""
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
