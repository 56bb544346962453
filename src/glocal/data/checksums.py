"""Checksums of the files in a folder, which detect flipped bits and files that do not match.

They are XXH3 (64 bits) of memory-mapped files, at several gigabytes per second, and are kept in one
small file, `checksums.json`. They detect accidents, not forgery: whoever can change a file can
change its checksum too.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection, Mapping
from pathlib import Path

from glocal.data.atomic import write_json

CHECKSUMS_FILE = "checksums.json"
_ALGORITHM = "xxh3_64"


def file_checksum(path: Path) -> str:
    """Return the checksum of a file's content, in hexadecimal."""
    import xxhash

    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        if path.stat().st_size:  # an empty file cannot be mapped
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                digest.update(content)
    return str(digest.hexdigest())


def write_checksums(folder: Path, *, skip: Collection[str] = ()) -> None:
    """Compute the checksums of all files under a folder and write them into it, atomically.

    Args:
        folder: The folder.
        skip: Names of files whose content may change.
    """
    left_out = {CHECKSUMS_FILE, *skip}
    found = {
        name: file_checksum(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (name := path.relative_to(folder).as_posix()) not in left_out
    }
    write_json(folder / CHECKSUMS_FILE, {"algorithm": _ALGORITHM, "files": found})


def read_checksums(folder: Path) -> Mapping[str, str] | None:
    """Return the stored checksum of each file by its path inside the folder; None without any.

    Raises:
        ValueError: The file of checksums cannot be read.
    """
    path = folder / CHECKSUMS_FILE
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_bytes())
        algorithm, files = stored["algorithm"], stored["files"]
        whole = all(isinstance(value, str) for value in files.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{CHECKSUMS_FILE} is damaged") from error
    if algorithm != _ALGORITHM or not whole:
        raise ValueError(f"{CHECKSUMS_FILE} is damaged: it has no {_ALGORITHM} checksums")
    return dict(files)


def changed_files(folder: Path, stored: Mapping[str, str]) -> list[str]:
    """Return the files that are missing or do not match their stored checksum."""
    root = folder.resolve()
    changed = []
    for name, expected in stored.items():
        path = folder / name
        try:
            inside = path.resolve().is_relative_to(root)
            same = inside and path.is_file() and file_checksum(path) == expected
        except (OSError, ValueError):  # ValueError: a name with a zero character
            same = False
        if not same:
            changed.append(name)
    return changed
