"""The library's errors name Python arguments; only the command line names options."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import glocal
from glocal.errors import ConfigError, DataError, Remedy

PACKAGE = Path(glocal.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z]")
# Modules that run pip and npm, or tell how to start Ray, with their options.
OTHER_PROGRAMS = {"encoders/downloads.py", "cluster/ray_cluster.py"}


def literals(path):
    """Yield the line and text of every string in a module, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_string_of_the_library_names_a_command_line_option():
    found = [
        f"{path}:{line}: {text:.80}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "cli"
        and path.relative_to(PACKAGE).as_posix() not in OTHER_PROGRAMS
        for line, text in literals(path)
        if OPTION.search(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(["first", "second"], remedies=[Remedy("text_field", "name it", value="…")]),
        DataError("no text", path="a.csv", line=3, remedies=[Remedy("skip_bad_rows", "go on")]),
    ],
)
def test_an_error_survives_the_way_between_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.remedies) == (str(error), error.remedies)
    assert str(error).startswith(error.message)
    assert "; pass " in str(error)
