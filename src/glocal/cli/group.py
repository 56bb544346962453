"""The command group: global options, subcommands by name, and the handling of failures.

- A new subcommand is a module with a typer `app` and a line in `EXAMPLES`.
- Global options work before and after the subcommand: every subcommand gets a copy of them.
- Failures are handled where subcommands are invoked, so that the console script, `python -m glocal`
  and tests behave the same.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from glocal._version import __version__
from glocal.cli import console, failures
from glocal.cli.parameters import option
from glocal.cli.plain_values import skip_validator
from glocal.control_characters import escape

# Every command in the order of `glocal --help`, from data to tags, with the example of its help.
EXAMPLES = {
    "demo": "glocal demo --texts 2000",
    "data": "glocal data inspect train.jsonl",
    "data inspect": "glocal data inspect train.jsonl dev.jsonl test.jsonl",
    "data split": "glocal data split all.csv --out parts --fractions 0.8,0.1,0.1",
    "data prepare": "glocal data prepare train.jsonl --dev dev.jsonl --recipe balanced",
    "train": "glocal train train.jsonl --dev dev.jsonl --recipe balanced --out model",
    "tune": "glocal tune train.jsonl --dev dev.jsonl --budget 30m --out tuned.toml",
    "distill": "glocal distill best train.jsonl --dev dev.jsonl --out student",
    "eval": "glocal eval model test.jsonl --train train.jsonl",
    "predict": "glocal predict model texts.jsonl -k 5 > tags.jsonl",
    "explain": 'glocal explain model "a text to tag"',
    "serve": "glocal serve model --feedback corrections",
    "info": "glocal info model",
    "threshold": "glocal threshold model dev.jsonl --precision 0.8",
    "push": "glocal push model --to /shared/models/subjects --licence cc-by-4.0",
    "export": "glocal export model --to onnx --int8 --dev dev.jsonl",
    "labels": "glocal labels add model new-labels.jsonl --examples new.jsonl",
    "labels add": "glocal labels add model new-labels.jsonl --examples new.jsonl",
    "labels remove": "glocal labels remove model c_123 c_456",
    "labels rename": "glocal labels rename model c_123 c_789",
    "labels merge": "glocal labels merge model c_123 c_456 --into c_789",
    "labels convert": "glocal labels convert vocabulary.ttl --languages de,en --out labels.jsonl",
    "teacher": 'glocal teacher train.jsonl "a text to look up"',
    "ensemble": "glocal ensemble model1 model2 test.jsonl --eval",
    "combine": "glocal combine fit a-dev.npz b-dev.npz --test a-test.npz --test b-test.npz",
    "combine save": "glocal combine save model dev.jsonl --out dev.npz",
    "combine fit": "glocal combine fit a-dev.npz b-dev.npz --test a-test.npz --test b-test.npz",
    "combine compare": "glocal combine compare small.npz seed0.npz seed1.npz seed2.npz",
    "ablate": "glocal ablate me-xml-table4 train.jsonl --dev dev.jsonl --out study",
    "analyze": "glocal analyze bands model test.jsonl",
    "analyze layers": "glocal analyze layers train.jsonl --dev dev.jsonl --out layers",
    "analyze bands": "glocal analyze bands model1 model2 test.jsonl",
    "analyze faithfulness": "glocal analyze faithfulness model test.jsonl",
    "analyze heads": "glocal analyze heads --labels 10000,100000",
    "baseline": "glocal baseline parabel train.jsonl test.jsonl",
    "benchmark": "glocal benchmark train.jsonl dev.jsonl test.jsonl --out benchmark",
    "recipes": "glocal recipes show balanced > my.toml",
    "recipes list": "glocal recipes list --json",
    "recipes show": "glocal recipes show balanced > my.toml",
    "encoders": "glocal encoders get mpnet",
    "encoders list": "glocal encoders list",
    "encoders get": "glocal encoders get mpnet",
    "cache": "glocal cache show",
    "cache show": "glocal cache show",
    "cache clear": "glocal cache clear",
}
COMMANDS = [words for words in EXAMPLES if " " not in words]
_MODULES = {"eval": "evaluate"}  # others are in the module of their name
# Names of values in the help, by option; others are N for numbers and TEXT.
VALUES = {
    **dict.fromkeys(("dev", "test", "train", "labels", "more_gold"), "FILE"),
    **dict.fromkeys(("out", "against", "reuse"), "DIR"),
    **dict.fromkeys(
        ("format", "text_field", "labels_field", "id_field", "device", "recipe"), "NAME"
    ),
    **dict.fromkeys(("k", "ks", "seeds", "fractions"), "N,N,…"),
}
COMPLETION_OPTIONS = ("install_completion", "show_completion")
# Also accepted after the subcommand.
REPEATED_OPTIONS = ("debug", "quiet", "verbose", "as_json", "threads")
HIDDEN_OPTIONS = ("debug", "verbose")  # not repeated in the subcommand's help


class LazyGroup(TyperGroup):
    """A group that imports a subcommand's module when the subcommand is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The keys serve the listing and the suggestions for a mistyped name.
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the subcommand's module on first use."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            module = f"glocal.cli.{_MODULES.get(cmd_name, cmd_name)}"
            command = get_command(importlib.import_module(module).app)
            command.name = cmd_name
            self._complete(command, cmd_name)
            self.commands[cmd_name] = command
        return self.commands.get(cmd_name)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the global options, which take plain values as they are."""
        return [skip_validator(parameter) for parameter in super().get_params(ctx)]

    def _complete(self, command: Any, words: str) -> None:
        """Give a subcommand plain help with an example, and the global options."""
        command.rich_markup_mode = None
        own_params = command.get_params
        command.get_params = lambda ctx: [skip_validator(p) for p in own_params(ctx)]
        command.epilog = f"Example:  {EXAMPLES[words]}" if words in EXAMPLES else None
        own = {option for parameter in command.params for option in parameter.opts}
        # typer adds options for completion to every app; they belong to the group alone.
        command.params = [p for p in command.params if p.name not in COMPLETION_OPTIONS]
        for parameter in command.params:
            _name_value(parameter)
        for shared in self.params:
            if shared.name in REPEATED_OPTIONS and not own.intersection(shared.opts):
                repeated: Any = copy.copy(shared)
                repeated.expose_value, repeated.callback = False, _apply
                repeated.hidden = shared.name in HIDDEN_OPTIONS
                command.params.append(repeated)
        for name, inner in getattr(command, "commands", {}).items():
            self._complete(inner, f"{words} {name}")

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; a failure becomes a message and an exit status."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(message := getattr(error, "message", None), str):
                error.message = escape(message)  # type: ignore[union-attr]
            if failures.belongs_to_typer(error) or console.settings.debug:
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand)
            raise typer.Exit(failures.report(error, command)) from error


def _name_value(parameter: Any) -> None:
    """Show the name of a value in the help (`--seed SEED`, `FILE...`) instead of its type."""
    if parameter.param_type_name == "option":
        if parameter.metavar is None and not parameter.is_flag:
            number = getattr(parameter, "min", None) is not None
            parameter.metavar = VALUES.get(parameter.name, "N" if number else "TEXT")
        return
    name = parameter.metavar or parameter.name.upper()
    name += "..." if parameter.nargs != 1 and " " not in name else ""
    usage = name if parameter.required else f"[{name}]"
    parameter.get_usage_pieces = lambda _context: [usage]
    parameter.display_type_rich = lambda ctx: ""


app = typer.Typer(
    cls=LazyGroup,
    name="glocal",
    help="Tag texts with the right few labels out of thousands to millions.",
    epilog="Start with `glocal demo`, or with `glocal data inspect FILE` on your own data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"glocal {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, option("Show tracebacks.", "--debug", envvar="GLOCAL_DEBUG")] = False,
    quiet: Annotated[bool, option("Only warnings and errors on stderr.", "--quiet", "-q")] = False,
    verbose: Annotated[bool, option("Also print details on stderr.", "--verbose", "-v")] = False,
    as_json: Annotated[bool, option("Print JSON to stdout instead of tables.", "--json")] = False,
    threads: Annotated[
        int | None, option("CPU threads to use.", min=1, metavar="N", show_default="all cores")
    ] = None,
    _version: Annotated[
        bool,
        option("Show the version and exit.", "--version", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Tag texts with the right few labels out of thousands to millions."""
    console.configure(debug=debug, quiet=quiet, verbose=verbose, as_json=as_json)
    _limit_threads(threads)


def _apply(_context: Any, option: Any, value: Any) -> None:
    """Apply a global option given after the subcommand."""
    if option.name == "threads":
        _limit_threads(value)
    elif value:
        console.configure(**{option.name: True})


def _limit_threads(threads: int | None) -> None:
    if threads is None:
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)  # numpy, torch and the library start with it
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def main() -> None:
    """Run the command line."""
    get_command(app)(prog_name="glocal")
