"""Plain values of options: what typer's validator would make of them, without importing it."""

import subprocess
import sys

import pytest
import typer
from typer.main import get_command

from glocal.cli import app
from glocal.cli.plain_values import skip_validator
from tests.cli.conftest import corpus_rows, write_jsonl

WORDS = (
    *("", "5", "-1", "0", "01", "1e3", "nan", "inf", "0.5", " 7 ", "1_000", "x", "é", "٣", "."),
    *("/", "/no/such/place", "true", "\x1b[31m", "a,b"),
)
VALUES = (None, *WORDS, [], ["a", "5"], ("1",), 5, -1, 0.5, True, b"a")


def commands(group, context):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, context)
        else:
            yield command


def parameters():
    group = get_command(app)
    context = typer.Context(group)
    for command in (group, *commands(group, context)):
        for parameter in command.get_params(context):
            # Callbacks change the settings of this process.
            if parameter.callback is None and hasattr(parameter, "type_descriptor"):
                yield context, parameter


def outcome(process, context, value):
    try:
        return repr(process(context, value))
    except Exception as error:  # typer's own classes
        return type(error).__name__, str(error)


def test_every_option_takes_the_values_that_typer_takes():
    found = list(parameters())
    assert len(found) > 200
    tried, plain = set(), 0
    for context, parameter in found:
        described = parameter.type_descriptor
        info = described.parameter_info
        key = (described.annotation, info.min, info.max, parameter.required, parameter.nargs)
        if repr(key) in tried:
            continue
        tried.add(repr(key))
        by_typer = type(parameter).process_value.__get__(parameter)
        for value in VALUES:
            expected = outcome(by_typer, context, value)
            assert outcome(skip_validator(parameter).process_value, context, value) == expected
            plain += not isinstance(expected, tuple)
    assert plain > 100


def test_a_file_that_cannot_be_read_is_left_to_typer(tmp_path, monkeypatch):
    file = tmp_path / "texts.jsonl"
    file.touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    paths = [(c, p) for c, p in parameters() if getattr(p.type_descriptor, "is_path", False)]
    assert paths
    for context, parameter in paths:
        kind, message = outcome(parameter.process_value, context, str(file))
        assert (kind, "not readable" in message) == ("BadParameter", True)


def test_plain_commands_import_no_validator(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", corpus_rows(40, 0))
    code = (
        "import sys; from glocal.cli import app; from typer.main import get_command\n"
        "for line in sys.argv[1:]:\n"
        "    get_command(app)(line.split('\\n'), standalone_mode=False)\n"
        "print('pydantic' in sys.modules)"
    )
    model = tmp_path / "m"
    calls = (
        ("train", train, "--recipe", "fast", "--out", model, "--seed", "1"),
        ("predict", model, train, "-k", "2", "--threshold", "0.1", "-o", tmp_path / "tags.jsonl"),
    )
    lines = ["\n".join(map(str, call)) for call in calls]
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr


@pytest.mark.parametrize(("k", "message"), [("0", "greater than or equal to 1"), ("x", "integer")])
def test_wrong_values_get_the_message_of_typer(run, tmp_path, k, message):
    result = run("predict", tmp_path, "-k", k)
    assert result.exit_code == 2
    assert message in result.stderr
