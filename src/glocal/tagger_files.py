"""Files of a `Tagger`: its settings beside the model, and a model that goes with the object."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.data.atomic import write_text
from glocal.errors import Interrupted, ModelError
from glocal.storage.integrity import update_checksums
from glocal.text_inputs import LabelColumns

_SETTINGS = "tagger.json"


class TemporaryHome:
    """A place for a model directory that is removed with this object, or at exit.

    Args:
        files: The content of its files by their path, where they are known already.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        folder = tempfile.mkdtemp(prefix="glocal-tagger-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, "model")
        for name, content in (files or {}).items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_bytes(content)


@contextlib.contextmanager
def interruptible(out: str | Path | None) -> Iterator[None]:
    """Say what is kept when the user interrupts training.

    Args:
        out: The model directory asked for; None for a temporary one.

    Raises:
        Interrupted: The user stopped the run.
    """
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        if out is None:
            raise Interrupted(
                "training was interrupted, and nothing of it is kept; with `out`, a run can be "
                "continued"
            ) from error
        if isinstance(error, Interrupted):
            raise
        raise Interrupted(
            f"training was interrupted before its first checkpoint, so another run into {out} "
            "starts again; finished parts are read from the cache"
        ) from error


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder by its path."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@dataclass(frozen=True)
class TaggerSettings:
    """Settings that a tagger keeps beside its model; the defaults are those of a model without.

    Attributes:
        k: Largest number of labels of a text.
        threshold: Lowest probability of a label, in place of the stored decision.
        whole_numbers: Whether labels are whole numbers.
        columns: The form of the labels, where they were an indicator matrix.
    """

    k: int = 5
    threshold: float | None = None
    whole_numbers: bool = False
    columns: LabelColumns | None = None


def write_settings(folder: Path, settings: TaggerSettings) -> None:
    """Write a tagger's own settings into a model directory."""
    document = asdict(settings)
    document |= document.pop("columns") or {}
    write_text(folder / _SETTINGS, json.dumps(document, indent=2, default=str) + "\n")
    update_checksums(folder)


def read_settings(folder: Path, label_ids: Sequence[str]) -> TaggerSettings:
    """Read a tagger's own settings; a model that `glocal train` wrote has none.

    Args:
        folder: The model directory.
        label_ids: The model's labels.

    Raises:
        ModelError: The settings are damaged, or belong to other labels.
    """
    path = folder / _SETTINGS
    if not path.exists():
        return TaggerSettings()
    try:
        return _checked(json.loads(path.read_text("utf-8")), label_ids)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _checked(settings: Any, label_ids: Sequence[str]) -> TaggerSettings:
    k, threshold, whole = settings["k"], settings["threshold"], settings["whole_numbers"]
    form, names = settings.get("form"), settings.get("names", ())
    if not isinstance(k, int) or k < 1 or not isinstance(whole, bool):
        raise ValueError(f"k is {k!r} and whole_numbers is {whole!r}")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold!r}")
    if form is None:
        _ = [int(label) for label in label_ids] if whole else []
        return TaggerSettings(k, threshold, whole)
    if form not in ("dense", "sparse", "table"):
        raise ValueError(f"form is {form!r}")
    if missing := set(label_ids) - {str(name) for name in names}:
        raise ValueError(f"the column of the label {min(missing)!r} is missing")
    return TaggerSettings(k, threshold, whole, LabelColumns(form, tuple(names)))
