"""Where the command line writes: data on stdout, messages and progress on stderr.

- colours only on a terminal, never with NO_COLOR (rich sees to both);
- the library's log messages go through the same console as the progress bar, which keeps the bar
  in one piece;
- without a terminal a progress bar becomes a plain line every ten seconds.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glocal.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Settings",
    "configure",
    "error",
    "note",
    "progress_bar",
    "settings",
    "stderr",
    "stdout",
    "warn",
]

PIPE_WIDTH = 100  # columns of a table that does not go to a terminal
PLAIN_SECONDS = 10.0  # between two progress lines where there is no terminal


@dataclass
class Settings:
    """The global options of this run."""

    debug: bool = False
    quiet: bool = False


settings = Settings()


def configure(*, debug: bool, quiet: bool, verbose: bool) -> None:
    """Apply the global options."""
    settings.debug, settings.quiet = debug, quiet
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logger = logging.getLogger("glocal")
    logger.handlers = [_ConsoleHandler()]
    logger.propagate = False
    logger.setLevel(level)


@functools.cache
def stderr() -> Console:
    """The console for messages and progress."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@functools.cache
def stdout() -> Console:
    """The console for tables and explanations; data in a machine format is written plainly."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(highlight=False, width=width)


def note(text: str) -> None:
    """A message to the user, unless `--quiet` is given; of several processes, the first speaks."""
    if not settings.quiet and os.environ.get("RANK", "0") == "0":
        stderr().print(text, markup=False)


def warn(text: str) -> None:
    """A message that `--quiet` does not silence."""
    stderr().print(f"warning: {text}", markup=False, style="yellow")


def error(text: str) -> None:
    """An error, as one block."""
    first, *rest = text.splitlines() or [""]
    stderr().print(
        "\n".join([f"error: {first}", *(f"  {line}" for line in rest)]),
        markup=False,
        style="bold red",
    )


@contextmanager
def progress_bar(task: str, *, unit: str = "texts") -> Iterator[Progress]:
    """A progress bar as a function of (done, total); the total may be unknown.

    Args:
        task: What is being done, as the user reads it.
        unit: What is counted.
    """
    if settings.quiet:
        yield lambda done, total: None
    elif stderr().is_terminal:
        with _rich_bar(task, unit) as update:
            yield update
    else:
        yield _plain_lines(task, unit)


@contextmanager
def _rich_bar(task: str, unit: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
               TimeRemainingColumn())  # fmt: skip
    started = time.monotonic()
    with RichProgress(*columns, console=stderr(), transient=True) as bar:
        handle = bar.add_task(task, total=None, state="")

        def update(done: int, total: int | None) -> None:
            bar.update(
                handle, completed=done, total=total, state=_state(done, total, unit, started)
            )

        yield update


def _plain_lines(task: str, unit: str) -> Progress:
    started = last = time.monotonic()

    def update(done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            note(f"{task}: {_state(done, total, unit, started)}")

    return update


def _state(done: int, total: int | None, unit: str, started: float) -> str:
    speed = done / max(time.monotonic() - started, 1e-9)
    of_total = f" of {total:,}" if total else ""
    return f"{done:,}{of_total} {unit}, {speed:,.0f} {unit}/s"


class _ConsoleHandler(logging.Handler):
    """Log records as plain lines on the console that also holds the progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            error(record.getMessage())
        elif record.levelno >= logging.WARNING:
            warn(record.getMessage())
        else:
            stderr().print(record.getMessage(), markup=False, style="dim")
