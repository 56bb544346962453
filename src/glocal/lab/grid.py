"""A table with typed columns, drawn for the terminal, as Markdown, as HTML and as CSV.

Shares are fractions inside and percentages where people read them; CSV keeps the fractions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Cell", "Column", "Grid"]

Cell = str | int | float | None
Style = Literal["text", "count", "share", "points", "number"]


@dataclass(frozen=True)
class Column:
    """A column's head and how its values are written.

    Attributes:
        name: Its head.
        style: `text`; `count` for whole numbers; `share` for fractions written as percentages;
            `points` for differences of these, with their sign; `number` for anything else.
    """

    name: str
    style: Style = "share"


@dataclass
class Grid:
    """Rows under columns; None where there is no value."""

    title: str
    columns: list[Column]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    note: str = ""

    def rich(self) -> Table:
        """For the terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=Text(self.title, style="table.title"),
            caption=Text(self.note, style="table.caption") if self.note else None,
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
        )
        for column in self.columns:
            is_text = column.style == "text"
            table.add_column(
                Text(column.name), justify="left" if is_text else "right", no_wrap=not is_text
            )
        for row in self.rows:
            table.add_row(*map(Text, self._written(row, decimals=1)))
        return table

    def markdown(self) -> str:
        """A title in bold, the table, and the note below it."""
        rule = ["---" if column.style == "text" else "---:" for column in self.columns]
        rows = [
            [c.replace("|", "\\|") for c in self._written(row, decimals=2)] for row in self.rows
        ]
        head = [column.name for column in self.columns]
        lines = "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])
        return f"**{self.title}**\n\n{lines}\n" + (f"\n{self.note}\n" if self.note else "")

    def html(self) -> str:
        """A heading, the table with the best share of each column marked, and the note."""
        from html import escape

        def line(cells: Sequence[str], tag: str, best: Sequence[bool]) -> str:
            kinds = [
                "text" if column.style == "text" else "best" if marked else ""
                for column, marked in zip(self.columns, best, strict=True)
            ]
            return "<tr>{}</tr>".format(
                "".join(
                    f'<{tag} class="{kind}">{escape(cell)}</{tag}>'
                    for cell, kind in zip(cells, kinds, strict=True)
                )
            )

        head = line([c.name for c in self.columns], "th", [False] * len(self.columns))
        rows = [line(self._written(row, decimals=1), "td", self._best(row)) for row in self.rows]
        note = f"\n<p>{escape(self.note)}</p>" if self.note else ""
        return (
            f'<h2>{escape(self.title)}</h2>\n<div class="scroll"><table>\n<thead>{head}</thead>\n'
            f"<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>{note}\n"
        )

    def _best(self, row: tuple[Cell, ...]) -> list[bool]:
        """Which values of a row are the largest share of their column."""
        marks = []
        for place, column in enumerate(self.columns):
            shares = [r[place] for r in self.rows]
            numbers = [s for s in shares if isinstance(s, float)] if column.style == "share" else []
            marks.append(len(numbers) > 1 and row[place] == max(numbers))
        return marks

    def csv(self) -> str:
        """Values as they are; an empty field where there is none."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows(self.rows)
        return text.getvalue()

    def _written(self, row: tuple[Cell, ...], *, decimals: int) -> list[str]:
        return [_write(v, c.style, decimals) for v, c in zip(row, self.columns, strict=True)]


def _write(value: Cell, style: Style, decimals: int) -> str:
    if value is None or value != value:  # a value that is not a number differs from itself
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
