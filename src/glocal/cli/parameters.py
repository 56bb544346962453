"""Descriptions of options and positional arguments: the help text, then everything else."""

from __future__ import annotations

from typing import Any

import typer


def option(help: str, *names: str, **settings: Any) -> Any:
    """Describe an option of a command; its name is that of the argument unless it is given."""
    return typer.Option(*names, help=help, **settings)


def argument(help: str, **settings: Any) -> Any:
    """Describe a positional argument of a command."""
    return typer.Argument(help=help, **settings)
