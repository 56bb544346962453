"""Help that a newcomer can read: examples, no types, nothing cut; global options anywhere."""

import json
import os
import subprocess
import sys

import pytest

from glocal.cli.group import COMMANDS, EXAMPLES
from tests.cli.test_reference import all_commands

LEAVES = [
    (words, command)
    for words, command in all_commands()
    if words and not getattr(command, "commands", None)
]


def test_the_list_of_commands_is_not_cut(run):
    shown = run("--help").stdout
    assert "..." not in shown.replace("[ARGS]...", "")
    for command in COMMANDS:
        assert f"\n  {command} " in shown


@pytest.mark.parametrize("words", [words for words, _ in all_commands() if words])
def test_help_has_an_example_and_no_types(run, words):
    result = run(*words, "-h")
    assert result.exit_code == 0
    assert result.stdout == run(*words, "--help").stdout
    flat = " ".join(result.stdout.split())
    example = EXAMPLES[" ".join(words)]
    assert f"Example: {example}" in flat
    assert example.startswith(f"glocal {words[0]}")
    assert "<" not in flat.replace("x<", "").replace("<=", "")


@pytest.mark.parametrize(("words", "command"), LEAVES)
def test_every_command_takes_json_and_quiet(words, command):
    options = {option for parameter in command.params for option in parameter.opts}
    assert options >= {"--json", "--quiet", "-q", "--threads", "--debug", "--verbose"}


def test_json_before_and_after_the_command(run):
    after = run("recipes", "list", "--json")
    before = run("--json", "recipes")
    assert before.stdout == after.stdout
    assert {recipe["name"] for recipe in json.loads(after.stdout)} >= {"fast", "balanced"}


@pytest.mark.parametrize("arguments", [("-q", "recipes", "list"), ("recipes", "list", "-q")])
def test_quiet_before_and_after_the_command(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    assert not result.stderr
    assert run("recipes", "list").stderr  # forgotten by the next run


def test_recipe_names_are_not_cut(run):
    from glocal.config import recipe_names

    words = run("recipes").stdout.split()
    assert set(recipe_names()) <= set(words)


def test_recipe_names_complete_in_the_shell():
    environment = {
        **os.environ,
        "_GLOCAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "glocal train --recipe bal",
        "COMP_CWORD": "3",
    }
    script = "from glocal.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["balanced"]


@pytest.mark.parametrize("words", ["--threads 1 recipes", "recipes --threads 1"])
def test_threads_limit_the_library(run, monkeypatch, words):
    from glocal.companions.sparse.threads import n_threads

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert run(*words.split()).exit_code == 0
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert n_threads(0) == 1
