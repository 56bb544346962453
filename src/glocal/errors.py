"""The exceptions of the library, and how a missing optional package is reported.

    GlocalError
    ├── ConfigError            a recipe or an option is wrong; every problem is listed at once
    ├── DataError              a file or a row cannot be used; names the file and the line
    ├── ModelError             a model directory cannot be read or written
    │   └── NewerFormatError   it was written by a newer version of the library
    ├── TrainingError          training cannot go on (a loss that is not finite, a full disk)
    │   └── Interrupted        the user stopped a run; its state is saved
    ├── NotFittedError         a `Tagger` was used before it was fitted (`glocal.tagger`)
    └── MissingExtraError      an optional package is not installed; names the `pip install` line

Messages say what happened, the value seen, what was expected and how to mend it. The command line
prints them as one block and exits with status 1; a traceback appears only with `--debug`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

__all__ = [
    "ConfigError",
    "DataError",
    "GlocalError",
    "Interrupted",
    "MissingExtraError",
    "ModelError",
    "NewerFormatError",
    "TrainingError",
    "did_you_mean",
    "require",
]


class GlocalError(Exception):
    """The root of every error the library raises on purpose."""


class ConfigError(GlocalError):
    """One or more settings are wrong.

    Args:
        problems: One sentence for each problem, or a single one.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class DataError(GlocalError):
    """A file or one of its rows cannot be used.

    Args:
        message: What is wrong and how to mend it.
        path: The file, where there is one.
        line: The line (or row) in it, counted from 1.
    """

    def __init__(
        self, message: str, *, path: str | Path | None = None, line: int | None = None
    ) -> None:
        self.message, self.path, self.line = message, path, line
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{place}{message}")


class ModelError(GlocalError):
    """A model directory cannot be read or written."""


class NewerFormatError(ModelError):
    """A model directory was written by a newer version of the library."""


class TrainingError(GlocalError):
    """Training cannot go on."""


class Interrupted(TrainingError):
    """The user stopped a run; its state was saved and can be resumed."""


class MissingExtraError(GlocalError, ImportError):
    """An optional package is not installed."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Args:
        module: The module's import name.
        extra: The extra of this package that installs it.
        purpose: What it is needed for, as the object of "is needed for".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"the package that provides '{module}' is needed for {purpose} and is not installed; "
            f"run: pip install 'glocal[{extra}]'"
        ) from error


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """A hint at the valid name nearest to a wrong one, to follow it in a message; or nothing."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""
