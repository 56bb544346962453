"""The exceptions of the library, and how a missing optional package is reported.

    GlocalError
    ├── ConfigError            a recipe or an option is wrong; every problem is listed at once
    ├── DataError              a file or a row cannot be used; names the file and the line
    │   └── InputError         texts or labels passed from Python cannot be used
    ├── ModelError             a model directory cannot be read or written
    │   └── NewerFormatError   it was written by a newer version of the library
    ├── TrainingError          training cannot continue (a loss that is not finite, a full disk)
    │   └── Interrupted        the user stopped a run; says what is kept
    ├── NotFittedError         a `Tagger` was used before it was fitted (`glocal.tagger`)
    └── MissingExtraError      an optional package is not installed; names the `pip install` line

A message says what happened, the value seen, what was expected and what to do. Where the fix is an
argument of the function that was called, the error carries it as a `Remedy` instead of naming it
in the message: Python users read `pass overwrite=True to replace it`, and a command line shows its
own option for the same argument.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Remedy:
    """An argument that fixes an error.

    Args:
        argument: The name of the argument, such as `overwrite`.
        purpose: The effect of passing it, to follow "to": `replace it`.
        value: The value to pass, as Python code; `…` where the caller has to choose one.
    """

    argument: str
    purpose: str
    value: str = "True"

    def __str__(self) -> str:
        return f"pass {self.argument}={self.value} to {self.purpose}"


class GlocalError(Exception):
    """The root of every error the library raises on purpose.

    Args:
        message: The text of the error, without its remedies.
        remedies: Arguments that fix it; any one of them is enough.
    """

    def __init__(self, message: str, *, remedies: Sequence[Remedy] = ()) -> None:
        self.message, self.remedies = message, tuple(remedies)
        super().__init__(message)

    def __str__(self) -> str:
        return self.render(str)

    def render(self, show: Callable[[Remedy], str]) -> str:
        """Return the message followed by its remedies.

        Args:
            show: Words one remedy; an empty string leaves it out.
        """
        shown = [text for text in map(show, self.remedies) if text]
        return "; ".join([self.message, ", or ".join(shown)] if shown else [self.message])


class ConfigError(GlocalError):
    """One or more settings are wrong.

    Args:
        problems: One sentence for each problem, or a single one.
        remedies: Arguments that fix them.
    """

    def __init__(self, problems: str | Sequence[str], *, remedies: Sequence[Remedy] = ()) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems), remedies=remedies)

    @classmethod
    def raise_any(cls, problems: Sequence[str], *, remedies: Sequence[Remedy] = ()) -> None:
        """Raise one error with all problems; nothing where there are none."""
        if problems:
            raise cls(problems, remedies=remedies)


class DataError(GlocalError):
    """A file or one of its rows cannot be used.

    Args:
        message: The problem and how to fix it.
        path: The file, where there is one.
        line: The line (or row) in it, counted from 1.
        document_id: The id of the document in that row, where it has one.
        remedies: Arguments that fix it.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        document_id: str | None = None,
        remedies: Sequence[Remedy] = (),
    ) -> None:
        self.path, self.line, self.document_id = path, line, document_id
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{place}{message}", remedies=remedies)


class InputError(DataError, ValueError):
    """Texts or labels passed from Python cannot be used; a `ValueError` as scikit-learn expects."""


class ModelError(GlocalError):
    """A model directory cannot be read or written."""


@contextlib.contextmanager
def unreadable(what: str, *kinds: type[Exception], advice: str = "") -> Iterator[None]:
    """Report errors of some kinds, which damaged files raise, as a `ModelError`.

    Args:
        what: What cannot be read.
        kinds: The kinds of errors; all others pass.
        advice: What to do, after the first line of the error.
    """
    try:
        yield
    except kinds as error:
        raise ModelError(f"{what}: {first_line(error)}{advice}") from error


class NewerFormatError(ModelError):
    """A model directory was written by a newer version of the library."""


class TrainingError(GlocalError):
    """Training cannot continue."""


class Interrupted(TrainingError):
    """The user stopped a run; the message says what is kept of it."""


class MissingExtraError(GlocalError, ImportError):
    """An optional package is not installed."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or raise an error that names the extra that installs it.

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


def require_training_packages(purpose: str) -> None:
    """Check that torch and transformers are installed, without importing them.

    Args:
        purpose: What they are needed for, as the object of "are needed for".

    Raises:
        MissingExtraError: One of them is not.
    """
    if not all(map(_is_installed, ("torch", "transformers"))):
        raise MissingExtraError(
            f"torch and transformers are needed for {purpose} and are not installed; "
            "run: pip install 'glocal[train]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind where there is none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return a hint at the valid name nearest to a wrong one, or an empty string."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def no_such(kind: str, name: str, valid: Iterable[str]) -> str:
    """Return the message for an unknown name, with the nearest valid one and all of them."""
    names = list(valid)
    return f"there is no {kind} '{name}'{did_you_mean(name, names)}; there are {', '.join(names)}"
