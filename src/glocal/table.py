"""Tables with typed columns, drawn for the terminal, as Markdown, as HTML and as CSV.

Shares are stored as fractions and shown as percentages; CSV keeps the fractions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Group

Cell = str | int | float | None
Style = Literal["text", "count", "share", "points", "number"]


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: Its heading.
        style: `text`; `count` for whole numbers; `share` for fractions shown as percentages;
            `points` for differences of these, with their sign; `number` for anything else.
    """

    name: str
    style: Style


def columns(style: Style, *names: str) -> list[Column]:
    """Make several columns of one style."""
    return [Column(name, style) for name in names]


@dataclass
class Table:
    """Rows of cells under columns: strings, numbers, or None where there is no value."""

    title: str
    columns: list[Column]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    note: str = ""

    @classmethod
    def from_records(cls, title: str, records: Sequence[Mapping[str, Any]]) -> Table:
        """Make a table with a column for every key; a record need not have all of them."""
        names = list(dict.fromkeys(key for record in records for key in record))
        rows = [tuple(record.get(name) for name in names) for record in records]
        return cls(title, columns("number", *names), rows)

    def __rich__(self) -> Group:
        """Draw it for the terminal; `console.print(table)` of rich calls this."""
        from rich import box
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD)
        for place, column in enumerate(self.columns):
            is_text = column.style == "text"
            justify: Any = "left" if is_text else "right"
            kept = not (is_text and place)  # on one line
            table.add_column(Text(column.name), justify=justify, overflow="fold", no_wrap=kept)
        named = [column.style == "text" for column in self.columns[:2]] == [True, True]
        previous = ""
        for first, *rest in self._written(decimals=1):
            # Where a second column names the rows too, the first name stands once above them.
            table.add_row(*map(Text, ["" if named and first == previous else first, *rest]))
            previous = first
        # Not as the table's own title and caption, which are wrapped at its width.
        title, note = Text(self.title, "table.title"), Text(self.note, "table.caption")
        return Group(*(part for part in (title, table, note) if part))

    def markdown(self) -> str:
        """Draw it as Markdown: the title in bold, the table, and the note."""
        rule = ["---" if column.style == "text" else "---:" for column in self.columns]
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self._written(decimals=2)]
        head = [column.name for column in self.columns]
        lines = "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])
        return f"**{self.title}**\n\n{lines}\n" + (f"\n{self.note}\n" if self.note else "")

    def html(self) -> str:
        """Draw it as HTML: a heading, the table with the best shares marked, and the note."""
        kinds = ["text" if column.style == "text" else "" for column in self.columns]
        head = _html_row("th", kinds, [column.name for column in self.columns])
        best = [self._best(place) for place in range(len(self.columns))]
        rows = [
            _html_row("td", [k or ("best" if v in b else "") for k, b, v in marks], written)
            for row, written in zip(self.rows, self._written(decimals=1), strict=True)
            for marks in [zip(kinds, best, row, strict=True)]
        ]
        note = f"\n<p>{escape(self.note)}</p>" if self.note else ""
        return (
            f'<h2>{escape(self.title)}</h2>\n<div class="scroll"><table>\n<thead>{head}</thead>\n'
            f"<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>{note}\n"
        )

    def _best(self, place: int) -> set[float]:
        """Return the largest share of a column; empty where there is nothing to compare."""
        values = [value for row in self.rows if isinstance(value := row[place], float)]
        compared = self.columns[place].style == "share" and len(values) > 1
        return {max(values)} if compared else set()

    def csv(self) -> str:
        """Draw it as CSV, values as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([[column.name for column in self.columns], *self.rows])
        return text.getvalue()

    def _written(self, *, decimals: int) -> list[list[str]]:
        styles = [column.style for column in self.columns]
        return [
            [_write(value, style, decimals) for value, style in zip(row, styles, strict=True)]
            for row in self.rows
        ]


def _html_row(tag: str, kinds: Sequence[str], cells: Sequence[str]) -> str:
    both = zip(kinds, cells, strict=True)
    cells = [f'<{tag} class="{kind}">{escape(cell)}</{tag}>' for kind, cell in both]
    return f"<tr>{''.join(cells)}</tr>"


def _write(value: Cell, style: Style, decimals: int) -> str:
    if value is None or value != value:  # NaN differs from itself
        return "–"
    if isinstance(value, str):
        return value
    if style == "count":
        return f"{value:,}"
    if style == "share":
        return f"{100 * value:.{decimals}f}"
    if style == "points":
        return f"{100 * value:+.{decimals}f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
