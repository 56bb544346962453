import errno
import json
import os
import subprocess
import sys

import pytest

from glocal import __version__
from glocal.cli import failures
from glocal.cli.group import COMMANDS
from glocal.errors import ConfigError, DataError, Interrupted, Remedy

HEAVY = ("torch", "transformers", "pyarrow", "scipy", "sklearn", "accelerate", "datasets")


# Asks for help again and again in one fresh interpreter; what is loaded stays loaded, so the first
# command that has loaded anything heavy is the one to blame.
ASK_FOR_HELP = """
import json, sys
import glocal
loaded = {"import glocal": sorted(sys.modules)}
from glocal.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["glocal", *words, "--help"]
    try:
        main()
    except SystemExit as leaving:
        assert leaving.code == 0, leaving.code
    loaded[" ".join(words)] = sorted(sys.modules)
sys.stderr.write(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded():
    """Top-level modules after `import glocal`, after `glocal --help` and after each command's."""
    asked = json.dumps([[], *([command] for command in COMMANDS)])
    script = [sys.executable, "-c", ASK_FOR_HELP, asked]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {
        words: {name.partition(".")[0] for name in names}
        for words, names in json.loads(done.stderr).items()
    }


def test_import_glocal_is_light(loaded):
    assert not loaded["import glocal"].intersection([*HEAVY, "numpy", "typer", "rich"])


def test_help_loads_nothing_heavy(loaded):
    assert not loaded[""].intersection([*HEAVY, "numpy"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_nothing_heavy(loaded, command):
    assert not loaded[command].intersection(HEAVY)


def test_help_lists_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.stdout


def test_version(run):
    assert run("--version").stdout == f"glocal {__version__}\n"


def test_no_arguments_shows_help(run):
    result = run()
    assert "Usage" in result.output
    assert result.exit_code == 2


def test_mistyped_command_suggests_the_nearest(run):
    result = run("trian", "x.jsonl")
    assert result.exit_code == 2
    assert "train" in result.stderr
    assert not result.stdout


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "glocal", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"glocal {__version__}\n"


# --- failures --------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch, run):
    """Make `glocal recipes` raise an exception of the test's choice."""

    def call(error, *options):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr("glocal.config.recipe_names", fail)
        return run(*options, "recipes")

    return call


def test_error_is_one_block_on_stderr(failing):
    result = failing(DataError("the text is empty; remove the row", path="a.csv", line=17))
    assert result.exit_code == 1
    assert result.stderr == "error: a.csv:17: the text is empty; remove the row\n"
    assert not result.stdout


def test_all_configuration_problems_are_shown(failing):
    result = failing(ConfigError(["first problem", "second problem"]))
    assert result.stderr == "error: first problem\n  second problem\n"


def test_debug_lets_the_exception_through(failing):
    error = DataError("broken")
    result = failing(error, "--debug")
    assert result.exception is error
    assert result.exit_code == 1


def test_debug_shows_a_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "glocal", "--debug", "recipes", "show", "nothing"],
        capture_output=True,
        text=True,
    )
    assert "Traceback" in done.stderr
    assert done.returncode == 1


def test_ctrl_c(failing):
    result = failing(KeyboardInterrupt())
    assert result.exit_code == 130
    assert result.stderr == "Stopped.\n"


def test_interrupted_training_says_how_to_resume(failing):
    result = failing(Interrupted("stopped at step 3", remedies=[Remedy("override", "go on")]))
    assert result.exit_code == 130
    assert result.stderr == "stopped at step 3; add --set to go on\n"


def test_a_remedy_is_an_option_of_the_command_or_left_out(files, run, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "glocal.toml").touch()
    result = run("train", files.train, "--out", tmp_path / "model")
    assert "already holds a model; add --overwrite to replace it" in result.stderr
    error = ConfigError(
        "wrong", remedies=[Remedy("overwrite", "replace it"), Remedy("plots", "skip", "False")]
    )
    assert str(error) == "wrong; pass overwrite=True to replace it, or pass plots=False to skip"
    assert failures.describe(error, None) == "wrong"


def test_reader_gone_is_quiet(failing):
    result = failing(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert result.exit_code == 141
    assert not result.stderr


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "check the permissions"),
        (errno.EROFS, "choose another place"),
        (errno.EEXIST, "a folder was expected"),
    ],
)
def test_os_error_names_the_path_and_the_way_out(failing, number, words):
    result = failing(OSError(number, os.strerror(number), "/some/place/model"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: /some/place/model: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_bug_asks_for_debug(failing):
    result = failing(ZeroDivisionError("division by zero"))
    assert result.exit_code == 1
    assert "unexpected ZeroDivisionError: division by zero" in result.stderr
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr


def test_memory_error_is_explained():
    assert "memory" in failures.describe(MemoryError(), None)


def test_markup_in_a_message_is_left_alone(failing):
    result = failing(ConfigError("run: pip install 'glocal[demo]'"))
    assert "pip install 'glocal[demo]'" in result.stderr


def test_no_color_is_respected():
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-m", "glocal", "recipes", "show", "nothing"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert "\x1b[31m" not in done.stderr
    assert "\x1b[1;31m" not in done.stderr
    assert "nothing" in done.stderr
