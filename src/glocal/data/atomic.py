"""Atomic writes of files and directories.

- `atomic_write` writes a file under a temporary name beside its target and renames it at the end.
- `replace_dir` does the same for a finished directory and keeps the old one until the new one is in
  place.
- `exclusive` lets one process at a time work on a path.

The first two flush to the disk before the rename, so that a crash or a power cut leaves either the
old content or the new one. If writing fails (a full disk, an exception in the body), the temporary
files are removed, the old content stays and the exception is raised.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # by another process
_BEHIND = 1 << 20


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends without an error.

    Args:
        path: The file to write; its folder is created if need be.

    Yields:
        A binary file object, under a temporary name until the block ends.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; a result should be as readable as any other new file.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    fsync_folder(target.parent)


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically; return its path."""
    with atomic_write(path) as file:
        file.write(text.encode())
    return path


def write_json(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a JSON file atomically; return its path."""
    return write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def exclusive(path: str | Path) -> Iterator[None]:
    """Keep other processes from working on `path` at the same time.

    The lock is a file beside it, `PATH.lock`; the system releases it when a process is killed.

    Raises:
        BlockingIOError: Another process works on it; the message has its number.
    """
    target = Path(path).absolute()
    lock = target.with_name(f"{target.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(lock) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            # Windows keeps a file that is open; the next run locks the same one.
            with contextlib.suppress(OSError):
                lock.unlink()


def _open_locked(path: Path) -> IO[str]:
    while True:
        file = path.open("a+")
        try:
            _lock(file)
            # The holder before may have removed the file after it was opened here.
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[str]) -> None:
    """Lock an open file for this process, until it is closed.

    Raises:
        BlockingIOError: Another process holds the lock.
    """
    try:
        _system_lock(file)
    except OSError as error:
        file.seek(0)
        holder = file.read()
        # A file system without locks: the number in the file has to do.
        if error.errno not in _HELD and not _is_running(holder):
            return
        raise BlockingIOError(error.errno, f"process {holder} holds the lock") from error


def _system_lock(file: IO[str]) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows
        import msvcrt

        # One byte behind the content, which other processes must be able to read.
        file.seek(_BEHIND)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def _is_running(number: str) -> bool:
    """Return whether a number is that of another running process."""
    if os.name == "nt" or not number.isdigit() or int(number) in (0, os.getpid()):
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


@contextlib.contextmanager
def temporary_dir(final: str | Path, *, kind: str = "") -> Iterator[Path]:
    """Create a directory beside `final` that is removed when the block ends, if it still exists.

    It is meant to be filled and passed to `replace_dir` inside the block.

    Args:
        final: Where the finished directory will go; its parent is created if need be.
        kind: A word in its name, by which `remove_leftovers` finds those of killed processes.
    """
    target = Path(final)
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.{kind}"
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=target.parent))
    os.chmod(folder, 0o777 & ~_umask())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def why_not_written(error: OSError) -> str:
    """Return the reason of a failed write in a few words, also of a folder that was copied."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        *_, first = error.args[0][0]  # of (source, copy, reason) for each file
        found = re.match(r"\[Errno \d+\] ([^:]+)", str(first))
        return found[1] if found else str(first)
    return error.strerror or str(error)


def remove_leftovers(final: str | Path, *, kind: str) -> None:
    """Remove the temporary directories of one kind that killed processes left beside `final`.

    The caller must make sure that no process is using one of them.
    """
    target = Path(final)
    for folder in target.parent.glob(f".{glob.escape(target.name)}.{kind}*.tmp"):
        shutil.rmtree(folder, ignore_errors=True)


def replace_dir(tmp: str | Path, final: str | Path) -> None:
    """Replace `final` with the finished directory `tmp`.

    Both must be on the same file system. On Linux the two change places at once, so that there is
    always a complete directory at `final`. Elsewhere an old `final` is set aside first and removed
    last; if the rename fails it is put back.

    Args:
        tmp: The finished directory.
        final: The path it replaces.
    """
    source, target = Path(tmp), Path(final)
    fsync_tree(source)
    aside: Path | None = None
    if target.is_dir() and _exchange(source, target):
        fsync_folder(target.parent)
        shutil.rmtree(source, ignore_errors=True)
        return
    if target.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
        os.replace(target, aside / target.name)
    try:
        os.replace(source, target)
    except BaseException:
        if aside is not None:
            os.replace(aside / target.name, target)
            shutil.rmtree(aside, ignore_errors=True)
        raise
    fsync_folder(target.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Let two paths change places at once; return whether the system can do this."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):  # not Linux
        return False
    current, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    done: int = rename(current, os.fsencode(first), current, os.fsencode(second), exchange)
    return done == 0


def fsync_tree(folder: str | Path) -> None:
    """Flush every file under `folder`, and the folders themselves, to the disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(root, name), "rb+") as file:
                os.fsync(file.fileno())
        fsync_folder(Path(root))


def fsync_folder(folder: Path) -> None:
    """Flush a folder to the disk: which files are in it.

    Some systems (Windows, some network file systems) cannot do this; a rename is still atomic
    there, only its survival of a power cut is up to the system.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    # The process's umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
