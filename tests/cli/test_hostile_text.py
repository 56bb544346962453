"""Text from data cannot command the terminal: escapes are made visible, markup is left alone."""

import json

import pytest
from rich.console import Console

from glocal.cli import console
from glocal.control_characters import escape
from tests.cli.conftest import corpus_rows, write_jsonl

RED, MARKUP, CSI = "\x1b[31mred", "[/nope]", "\x9b2J"
TEXT = "the red fox"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Training texts whose ids, labels and file name hold escapes and markup, and a model."""
    from tests.cli.conftest import invoke

    folder = tmp_path_factory.mktemp("hostile")
    rename = {"red": RED, "fox": MARKUP, "blue": CSI}
    rows = [
        {**row, "id": f"\x1b]0;{row['id']}", "labels": [rename.get(n, n) for n in row["labels"]]}
        for row in corpus_rows(64, 0)
    ]
    file = write_jsonl(folder / "bad\x1b[31m[bold].jsonl", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        result = invoke("train", file, "--out", folder / "m", "--recipe", "fast")
    assert result.exit_code == 0, result.output
    return file, folder / "m"


def check(result, *words):
    assert result.exit_code in (0, 1), result.output
    assert "fault in glocal" not in result.stderr
    for output in (result.stdout, result.stderr):
        assert not set(output) & {"\x1b", "\x9b", "\u202e"}
    for word in words:
        assert word in result.stdout + result.stderr


def test_explain_shows_label_names_as_they_are(run, hostile):
    check(run("explain", hostile[1], TEXT, "-k", "3"), MARKUP, "\\x1b[31mred")


def test_json_keeps_the_name_and_escapes_it(run, hostile):
    result = run("explain", hostile[1], TEXT, "-k", "15", "--json")
    check(result, "\\u001b[31mred")
    names = {tag["id"] for tag in json.loads(result.stdout)["tags"]}
    assert names >= {RED, MARKUP, CSI}


def test_eval_and_inspect_show_file_names_as_they_are(run, hostile):
    file, model = hostile
    check(run("eval", model, file))
    check(run("data", "inspect", file), "bad\\x1b[31m[bold].jsonl")


def test_a_missing_file_with_an_escape_in_its_name(run, hostile):
    check(run("eval", hostile[1], "\x1b[31mnowhere"), "error: \\x1b[31mnowhere")


def test_wrong_usage_with_an_escape_in_an_argument(run, hostile):
    result = run("info", hostile[1], "\x1b[31mtoo", "many")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "\\x1b[31mtoo" in result.stderr


def test_colours_of_our_own_survive(capsys):
    fake = Console(force_terminal=True, color_system="standard", highlight=False)
    fake.push_render_hook(console.stderr()._render_hooks[0])
    fake.print(f"{RED} and more", style="green")
    printed = capsys.readouterr().out
    assert printed.startswith("\x1b[32m\\x1b")
    assert printed.count("\x1b") == 2


def test_line_breaks_and_letters_of_any_script_stay():
    text = "a\n\tb שלום é 🦊"
    assert escape(text) == text
