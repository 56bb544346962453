"""Failures as the user sees them: one block on stderr and an exit status.

1    an error of the library, of the operating system, or a bug
2    wrong usage (typer's own message)
130  stopped with Ctrl-C; a training run has saved its state
141  the reader of the output went away (`glocal predict … | head`)
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

import typer

from glocal.cli import console
from glocal.errors import GlocalError, Interrupted, Remedy

FAILED, STOPPED, READER_GONE = 1, 130, 141

# Arguments of the library whose option has another name.
OPTION_NAMES = {"label_table": "labels"}


# Packages of the extra `train`; commands for research import them without asking.
TRAINING_PACKAGES = ("torch", "transformers", "accelerate", "tokenizers")


def belongs_to_typer(error: BaseException) -> bool:
    """Whether typer itself turns this exception into a message and a status."""
    return isinstance(error, typer.Abort) or hasattr(error, "exit_code")


def report(error: BaseException, command: Any) -> int:
    """Print what happened and return the exit status.

    Args:
        error: The exception that ended the command.
        command: The typer command that raised it, whose options serve as remedies.
    """
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return READER_GONE
    if isinstance(error, KeyboardInterrupt):
        console.note("Stopped.")
        return STOPPED
    if isinstance(error, Interrupted):
        console.note(describe(error, command))
        return STOPPED
    console.error(describe(error, command))
    return FAILED


def warning_text(warning: GlocalError) -> str:
    """Return the message for a warning of a command that has every option that fixes it."""
    return warning.render(
        lambda remedy: (
            f"add --{OPTION_NAMES.get(remedy.argument, remedy.argument).replace('_', '-')} to "
            f"{remedy.purpose}"
        )
    )


def describe(error: BaseException, command: Any) -> str:
    """Return the message for an error, and the options of the command that fix it."""
    if isinstance(error, GlocalError):
        return error.render(lambda remedy: _option(remedy, command))
    if isinstance(error, OSError):
        return _describe_os_error(error)
    if isinstance(error, ModuleNotFoundError) and error.name in TRAINING_PACKAGES:
        return f"this needs {error.name}, which is not installed; run: pip install 'glocal[train]'"
    if isinstance(error, MemoryError):
        return "not enough memory; a smaller batch size or fewer texts at a time need less"
    kind = type(error).__name__
    return (
        f"unexpected {kind}: {error}\n"
        "This is a fault in glocal. `glocal --debug …` shows where it comes from."
    )


def _option(remedy: Remedy, command: Any) -> str:
    """Word a remedy as an option of the command; empty where it has no such option."""
    name = OPTION_NAMES.get(remedy.argument, remedy.argument)
    commands = [command, *getattr(command, "commands", {}).values()]
    for parameter in (p for c in commands for p in getattr(c, "params", ())):
        if parameter.name == name and parameter.param_type_name == "option":
            options = parameter.secondary_opts if remedy.value == "False" else parameter.opts
            return f"add {max(options, key=len)} to {remedy.purpose}" if options else ""
    return ""


def _describe_os_error(error: OSError) -> str:
    advice = {
        errno.ENOSPC: "free some space and run the command again",
        errno.EDQUOT: "your quota is used up; free some space and run the command again",
        errno.EACCES: "check the permissions, or choose another place",
        errno.EPERM: "check the permissions, or choose another place",
        errno.EROFS: "it cannot be written to; choose another place",
        errno.ENOENT: "check the path",
        errno.EEXIST: "a folder was expected, and a file of this name is there",
        errno.EISDIR: "a file was expected",
        errno.ENOTDIR: "a folder was expected",
    }.get(error.errno or 0)
    path = error.filename if error.filename is not None else error.filename2
    where = f"{os.fsdecode(path)}: " if isinstance(path, str | bytes | os.PathLike) else ""
    reason = (error.strerror or str(error) or type(error).__name__).strip()
    return f"{where}{reason[:1].lower()}{reason[1:]}{f'; {advice}' if advice else ''}"


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the flush at exit does not fail a second time."""
    with contextlib.suppress(OSError, ValueError):  # not every stdout is a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
