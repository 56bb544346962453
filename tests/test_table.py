import csv
import io

from rich.console import Console

from glocal.table import Column, Table, columns


def example():
    heads = [
        *columns("text", "name"),
        Column("share", "share"),
        Column("difference", "points"),
        Column("count", "count"),
        Column("other", "number"),
    ]
    rows = [("a|b [x]", 0.12345, -0.01, 12345, 0.00012345), ("none", None, float("nan"), None, 2)]
    return Table("Title [1]", heads, rows, note="A note.")


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
    console.print(example())
    text = console.file.getvalue()
    for words in ("Title [1]", "a|b [x]", "12.3", "-1.0", "12,345", "–", "A note."):
        assert words in text


def test_html_marks_the_best_share_and_escapes():
    rows = [("a<b>", 0.5, 1), ("b", 0.75, 2), ("c", None, 3)]
    heads = [*columns("text", "name"), *columns("share", "P@1"), *columns("count", "n")]
    html = Table("T", heads, rows, note="x & y").html()
    assert '<td class="text">a&lt;b&gt;</td><td class="">50.0</td><td class="">1</td>' in html
    assert '<td class="best">75.0</td>' in html
    assert html.count("best") == 1
    assert "<p>x &amp; y</p>" in html


def test_a_name_stands_once_above_its_rows():
    rows = [("a", "x", 1), ("a", "y", 2), ("b", "x", 3)]
    table = Table("T", [*columns("text", "model", "band"), *columns("count", "n")], rows)
    console = Console(width=60, file=io.StringIO())
    console.print(table)
    assert console.file.getvalue().count("a ") == 1
    assert table.markdown().count("| a |") == 2
