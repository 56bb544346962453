"""The page about the command line names every command and option, and its commands run."""

import ast
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

import glocal
from glocal.cli import app
from glocal.cli.failures import OPTION_NAMES
from glocal.cli.group import COMMANDS, EXAMPLES
from tests.cli.conftest import TINY

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def all_commands():
    """The group, its commands and theirs, by the words that call them."""
    group = get_command(app)
    yield (), group
    for name in COMMANDS:
        command = group.get_command(None, name)
        yield (name,), command
        for inner, subcommand in getattr(command, "commands", {}).items():
            yield (name, inner), subcommand


@pytest.mark.parametrize(("words", "command"), list(all_commands()))
def test_every_option_is_documented(words, command):
    assert f"`glocal {' '.join(words)}".rstrip() in PAGE
    for parameter in command.params:
        for option in [*parameter.opts, *parameter.secondary_opts]:
            if option.startswith("-"):
                assert f"`{option}`" in PAGE, option


@pytest.mark.parametrize(("words", "command"), list(all_commands()))
def test_every_command_and_option_has_help(words, command):
    assert command.help
    assert all(p.help for p in command.params if p.param_type_name == "option")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_example(command):
    assert f"Example: `{EXAMPLES[command]}`" in PAGE


def documented_commands():
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        yield from block.splitlines()


def test_documented_commands_run(run, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in vars(files).values():
        shutil.copy(path, tmp_path)
    commands = list(documented_commands())
    assert len(commands) >= 5
    for line in commands:
        words = shlex.split(line.split(" > ")[0])
        assert words[0] == "glocal"
        result = run(*words[1:], *(TINY if words[1] == "train" else ()))
        assert result.exit_code == 0, f"{line}\n{result.output}"


def test_every_remedy_of_the_library_is_an_option():
    package = Path(glocal.__file__).parent
    named = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remedy":
                named |= {node.args[0].value} if isinstance(node.args[0], ast.Constant) else set()
    options = {parameter.name for _, command in all_commands() for parameter in command.params}
    assert len(named) > 5
    assert {OPTION_NAMES.get(name, name) for name in named} <= options
