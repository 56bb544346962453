"""Output of the command line: data on stdout, messages and progress on stderr.

- Colours appear only on a terminal, and never with NO_COLOR (rich handles both).
- Text from data is safe to print: both consoles ignore rich markup, and `Cleaner` makes control
  characters visible in everything they print, so that no label name or file name can command the
  terminal.
- The library's log messages go through the same console as the progress bar, which keeps the bar
  intact.
- Without a terminal a progress bar becomes a plain line every ten seconds.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glocal.control_characters import escape, escape_json
from glocal.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from glocal.table import Table

# Variables that make rich take any stream for a terminal.
FORCED_COLOUR = {"FORCE_COLOR", "TTY_COMPATIBLE"}
PIPE_WIDTH = 100  # columns of a table that does not go to a terminal


@dataclass
class Settings:
    """The global options of this run."""

    debug: bool = False
    quiet: bool = False
    verbose: bool = False
    as_json: bool = False


settings = Settings()


def configure(**changes: bool) -> None:
    """Change some of the global options."""
    for name, value in changes.items():
        setattr(settings, name, value)
    quiet_level = logging.WARNING if settings.quiet else logging.INFO
    level = logging.DEBUG if settings.verbose else quiet_level
    logger = logging.getLogger("glocal")
    logger.handlers = [_ConsoleHandler()]
    logger.propagate = False
    logger.setLevel(level)


@functools.cache
def stderr() -> Console:
    """The console for messages and progress."""
    return _console(stderr=True, soft_wrap=True)


@functools.cache
def stdout() -> Console:
    """The console for tables and explanations."""
    return _console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _console(**settings: Any) -> Console:
    from rich.console import Console, RenderHook
    from rich.segment import Segment

    class Cleaner(RenderHook):
        """Makes control characters visible in whatever is about to be printed."""

        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [_Cleaned(renderable) for renderable in renderables]

    class _Cleaned:
        def __init__(self, renderable: Any) -> None:
            self.renderable = renderable

        def __rich_console__(self, console: Console, options: Any) -> Iterator[Segment]:
            for part in console.render(self.renderable, options):
                yield part if part.control else part._replace(text=escape(part.text))

    console = Console(highlight=False, markup=False, emoji=False, **settings)
    console.push_render_hook(Cleaner())
    return console


def print_json(document: Any) -> None:
    """Print a document as JSON to stdout, with control characters escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    sys.stdout.write(f"{escape_json(text)}\n")


def show(document: Any, tables: Iterable[Table] = ()) -> None:
    """Print the document as JSON with `--json`, or else the tables that show it."""
    if settings.as_json:
        print_json(document)
        return
    for table in tables:
        stdout().print(table)


def note(text: str) -> None:
    """Print a message, unless `--quiet` is given; of several processes, only the first prints."""
    if not settings.quiet and os.environ.get("RANK", "0") == "0":
        stderr().print(text)


def warn(text: str) -> None:
    """Print a message that `--quiet` does not silence."""
    stderr().print(f"warning: {text}", style="yellow")


def error(text: str) -> None:
    """Print an error as one block."""
    stderr().print("error: " + "\n  ".join(text.splitlines()), style="bold red")


def progress_bar(task: str, *, unit: str = "texts") -> AbstractContextManager[Progress]:
    """Show a progress bar; yields a function of (done, total), where the total may be None.

    Args:
        task: The work, as the user reads it.
        unit: The things counted.
    """
    from glocal import terminal

    if settings.quiet:
        return terminal.progress_bar(None, task, unit=unit)
    if not sys.stderr.isatty() and not FORCED_COLOUR.intersection(os.environ):
        return nullcontext(terminal.plain_lines(note, task, unit))  # without loading rich
    return terminal.progress_bar(stderr(), task, unit=unit, note=note)


class _ConsoleHandler(logging.Handler):
    """Prints log records on the console that also holds the progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            error(record.getMessage())
        elif record.levelno >= logging.WARNING:
            warn(record.getMessage())
        else:
            stderr().print(record.getMessage(), style="dim")
