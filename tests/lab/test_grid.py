import csv
import io

from rich.console import Console

from glocal.lab.grid import Column, Grid


def example():
    columns = [
        Column("name", "text"),
        Column("share"),
        Column("difference", "points"),
        Column("count", "count"),
        Column("other", "number"),
    ]
    rows = [("a|b [x]", 0.12345, -0.01, 12345, 0.00012345), ("none", None, float("nan"), None, 2)]
    return Grid("Title [1]", columns, rows, note="A note.")


def test_markdown():
    assert example().markdown() == (
        "**Title [1]**\n\n"
        "| name | share | difference | count | other |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| a\\|b [x] | 12.35 | -1.00 | 12,345 | 0.0001234 |\n"
        "| none | – | – | – | 2 |\n"
        "\nA note.\n"
    )


def test_csv_keeps_fractions():
    rows = list(csv.reader(io.StringIO(example().csv())))
    assert rows[0] == ["name", "share", "difference", "count", "other"]
    assert rows[1] == ["a|b [x]", "0.12345", "-0.01", "12345", "0.00012345"]
    assert rows[2][1] == ""


def test_terminal_shows_brackets_as_they_are():
    console = Console(width=100, file=io.StringIO())
    console.print(example().rich())
    text = console.file.getvalue()
    for words in ("Title [1]", "a|b [x]", "12.3", "-1.0", "12,345", "–", "A note."):
        assert words in text
