"""The command group: global options, subcommands by name, and the way out of every failure.

- `COMMANDS` is the whole list; a new subcommand is a module with a typer `app` and a line there;
- failures are handled where subcommands are invoked, so that the console script, `python -m glocal`
  and tests meet the same behaviour.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from glocal._version import __version__
from glocal.cli import console, failures

__all__ = ["COMMANDS", "app", "main"]

# In the order in which `--help` lists them: the way from data to tags.
COMMANDS = {
    "demo": "glocal.cli.demo",
    "data": "glocal.cli.data",
    "train": "glocal.cli.train",
    "eval": "glocal.cli.evaluate",
    "predict": "glocal.cli.predict",
    "explain": "glocal.cli.explain",
    "teacher": "glocal.cli.teacher",
    "ensemble": "glocal.cli.ensemble",
    "ablate": "glocal.cli.ablate",
    "analyze": "glocal.cli.analyze",
    "baseline": "glocal.cli.baseline",
    "benchmark": "glocal.cli.benchmark",
    "recipes": "glocal.cli.recipes",
    "encoders": "glocal.cli.encoders",
}
COMPLETION_OPTIONS = ("install_completion", "show_completion")


class LazyGroup(TyperGroup):
    """A group that imports a subcommand's module when the subcommand is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The keys serve the listing and the suggestions for a mistyped name; the values come later.
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the subcommand's module on first use."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            command = get_command(importlib.import_module(COMMANDS[cmd_name]).app)
            command.name = cmd_name
            # typer adds these to every app; they belong to the group alone.
            command.params = [p for p in command.params if p.name not in COMPLETION_OPTIONS]
            self.commands[cmd_name] = command
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; a failure becomes a message and an exit status."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            if failures.belongs_to_typer(error) or console.settings.debug:
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand)
            raise typer.Exit(failures.report(error, command)) from error


app = typer.Typer(
    cls=LazyGroup,
    name="glocal",
    help="Tag texts with the right few labels out of thousands to millions.",
    epilog="Start with `glocal demo`, or with `glocal data inspect FILE` on data of your own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"glocal {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="GLOCAL_DEBUG", help="Show tracebacks.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only warnings and errors on stderr.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Details on stderr as well.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Tag texts with the right few labels out of thousands to millions."""
    console.configure(debug=debug, quiet=quiet, verbose=verbose)


def main() -> None:
    """Run the command line."""
    get_command(app)(prog_name="glocal")
