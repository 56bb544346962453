"""Shows a training run on the command line's console."""

from __future__ import annotations

from glocal import terminal
from glocal.cli import console
from glocal.config.durations import format_seconds
from glocal.terminal import format_scores

__all__ = ["TrainingProgress", "format_scores", "format_seconds"]


class TrainingProgress(terminal.TrainingProgress):
    """Shows a training run; `--quiet` silences it."""

    def __init__(self) -> None:
        super().__init__(None if console.settings.quiet else console.stderr(), console.note)
