"""Integrity of a model directory: the checksums of its files, and edits that keep them right."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from glocal.data.atomic import (
    exclusive,
    remove_leftovers,
    replace_dir,
    temporary_dir,
    why_not_written,
)
from glocal.data.checksums import changed_files, read_checksums, write_checksums
from glocal.errors import ModelError

logger = logging.getLogger(__name__)

_EDITED = "edited-"  # in the names of folders that are to replace a model
_NOT_READ = ("README.md", "train_log.jsonl")  # by prediction; people may edit the card


@dataclass(frozen=True)
class Integrity:
    """The state of a model directory's files.

    Attributes:
        checked: Files with a stored checksum; empty if none are stored.
        changed: Those of them that are missing or do not match it.
    """

    checked: tuple[str, ...]
    changed: tuple[str, ...]


def update_checksums(folder: str | Path) -> None:
    """Compute the checksums of a model directory's files again and store them in it.

    Files of a stored model are edited with `edit_model`, which calls this and replaces all at once.
    """
    write_checksums(Path(folder), skip=_NOT_READ)


def model_integrity(folder: str | Path) -> Integrity:
    """Compare the files of a model directory with their stored checksums.

    Raises:
        ModelError: The stored checksums cannot be read.
    """
    source = Path(folder)
    try:
        stored = read_checksums(source)
    except ValueError as error:
        raise ModelError(f"the model directory {source} is damaged: {error}") from error
    if stored is None:
        return Integrity((), ())
    return Integrity(tuple(stored), tuple(changed_files(source, stored)))


def check_model(folder: str | Path) -> None:
    """Check the files of a model directory before anything reads them.

    A model without checksums, as earlier versions wrote them, is accepted with a warning.

    Raises:
        ModelError: A file is missing or was changed since the model was saved.
    """
    found = model_integrity(folder)
    if not found.checked:
        logger.warning(
            "%s has no checksums, so damaged files would go unnoticed; save the model again to "
            "add them",
            folder,
        )
    if not found.changed:
        return
    missing = [name for name in found.changed if not (Path(folder) / name).is_file()]
    problem = (
        f"is incomplete: {', '.join(missing)} is missing"
        if missing
        else f"is damaged: {', '.join(found.changed)} changed since the model was saved"
    )
    raise ModelError(
        f"the model directory {folder} {problem}; copy the whole directory again, or train the "
        "model again"
    )


@contextlib.contextmanager
def writing_model(target: Path) -> Iterator[None]:
    """Report why a model directory cannot be written.

    Raises:
        ModelError: Another process writes to it, or the operating system has an error.
    """
    try:
        yield
    except BlockingIOError as error:
        raise ModelError(
            f"another process is writing to {target} ({error.strerror}); wait for it"
        ) from error
    except OSError as error:
        raise ModelError(
            f"cannot write the model directory {target}: {why_not_written(error)}; "
            "nothing there was changed"
        ) from error


@contextlib.contextmanager
def edit_model(
    path: str | Path, *, out: str | Path | None = None, without: Collection[str] = ()
) -> Iterator[Path]:
    """Change files of a stored model, all at once or not at all, with their checksums.

    The block gets a copy of the directory, which replaces the stored one when the block ends
    without an error. Files in the copy are links to the stored ones: replace them (`atomic_write`
    does), never change them in place. Processes that use the old model keep it.

    Args:
        path: The model directory.
        out: Where the changed copy goes; by default it replaces the model.
        without: Names of files and folders that the copy does not have: they are written again.

    Raises:
        ModelError: Another process writes to the model, or the copy cannot be written.

    Example:
        >>> with edit_model("model/") as folder:
        ...     write_json(folder / "metrics.json", metrics)
    """
    target, top = Path(path if out is None else out), os.fspath(path)
    with writing_model(target), exclusive(target):
        remove_leftovers(target, kind=_EDITED)
        with temporary_dir(target, kind=_EDITED) as folder:
            shutil.copytree(
                top,
                folder,
                copy_function=_link,
                dirs_exist_ok=True,
                ignore=lambda inside, names: without if os.fspath(inside) == top else (),
            )
            yield folder
            update_checksums(folder)
            replace_dir(folder, target)


def _link(source: str, copy: str) -> None:
    """Link a file, or copy it where the file system has no links."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)
