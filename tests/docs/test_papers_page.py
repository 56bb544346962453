"""Every command of the page about the papers' tables and figures can be called."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from glocal.cli import app, console
from glocal.config import load_recipe
from glocal.lab.variant_tables import load_table, table_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "papers.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`(glocal [a-z][^`]*)`", PAGE)) - {"glocal encoders get"})


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_parses(line):
    command, words = get_command(app), shlex.split(line)[1:]
    name = "glocal"
    while hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(None, name)
        assert command is not None, name
    try:
        parsed = command.make_context(name, list(words)).params
    finally:
        console.configure(debug=False, quiet=False, verbose=False, as_json=False)
    if name == "ablate":
        load_table(parsed["table"])
    if parsed.get("recipe"):
        load_recipe(parsed["recipe"], parsed.get("override") or ())
    if name == "show":
        load_recipe(words[0])


def test_every_built_in_table_is_there():
    assert [name for name in table_names() if f"glocal ablate {name} " not in PAGE] == []


def test_every_paper_is_there():
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert headings[:4] == ["GlocalXML", "ME-XML", "APLC-XLNet", "TReaderXML"]
    # Tables and figures as the papers number them, longer version of GlocalXML.
    numbered = {"GlocalXML": (4, 4), "ME-XML": (6, 2), "APLC-XLNet": (4, 5), "TReaderXML": (4, 1)}
    for paper, (tables, figures) in numbered.items():
        section = PAGE.partition(f"## {paper}\n")[2].partition("\n## ")[0]
        for what, count in (("Table", tables), ("Figure", figures)):
            rows = re.findall(rf"^\| {what}s? ([^|]*)\|", section, re.MULTILINE)
            found = {int(n) for row in rows for n in re.findall(r"\d+", row.partition("(")[0])}
            found |= {
                n
                for row in rows
                for low, high in re.findall(r"(\d+) to (\d+)", row)
                for n in range(int(low), int(high))
            }
            assert set(range(1, count + 1)) <= found, (paper, what)
