"""Size and removal of what the cache holds.

Only folders that the library itself creates are counted and removed, so that a `GLOCAL_CACHE` that
points at a folder with other files is safe.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glocal.data.cache import cache_dir
from glocal.errors import ConfigError, did_you_mean

CACHE_KINDS = {
    "builtin": "built-in data sets",
    "corpora": "large files, read once",
    "encoders": "downloaded encoders",
    "jobs": "inputs of processes that fit models",
    "label-text": "encoded label names",
    "models": "models from the Hugging Face hub",
    "sparse": "linear models of words",
    "sparse-parts": "parts of linear models of words whose training was ended",
    "scopes": "labels suggested by similar texts",
    "teacher-scores": "probabilities of a teacher for its student",
    "text-vectors": "texts as mean word vectors",
    "tokens": "tokenised texts",
    "vocabularies": "SKOS vocabularies as label tables",
}


@dataclass(frozen=True)
class CacheEntry:
    """One folder of the cache.

    Args:
        name: The name of the folder.
        about: Its content, in words.
        path: The folder.
        n_entries: Number of entries in it.
        n_bytes: Size of its files in all.
    """

    name: str
    about: str
    path: Path
    n_entries: int
    n_bytes: int


def folder_size(folder: Path) -> int:
    """Return the size of all files under a folder in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def cache_contents() -> list[CacheEntry]:
    """Return the folders of the cache that exist."""
    entries = []
    for name, about in CACHE_KINDS.items():
        folder = cache_dir(name, create=False)
        if folder.is_dir():
            n_entries = len(list(folder.iterdir()))
            entries.append(CacheEntry(name, about, folder, n_entries, folder_size(folder)))
    return entries


def clear_cache(names: Sequence[str] = ()) -> list[CacheEntry]:
    """Remove folders of the cache and return what was removed.

    Args:
        names: The folders, as in `CACHE_KINDS`; all by default.

    Raises:
        ConfigError: A name is not a folder of the cache.
    """
    for name in names:
        if name not in CACHE_KINDS:
            known = ", ".join(CACHE_KINDS)
            hint = did_you_mean(name, CACHE_KINDS)
            raise ConfigError(f"the cache has no folder '{name}'{hint}; it has {known}")
    removed = [entry for entry in cache_contents() if not names or entry.name in names]
    for entry in removed:
        shutil.rmtree(entry.path)
    return removed
