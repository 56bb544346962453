"""`glocal teacher`: similar training texts, the labels they vote for, the labels added above.

The teacher is that of a model, or is made of a training file on the spot, which needs no training.
`--recall` measures on other texts how many of their labels the scopes hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.corpora import read_file
from glocal.cli.options import AsJson, Labels, Override, Reading, parse_ks, reads_files
from glocal.errors import ConfigError, DataError, ModelError

if TYPE_CHECKING:
    from rich.table import Table

    from glocal.companions.teacher.recall import ScopeRecall
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.vocabulary.label_space import LabelSpace

__all__ = ["app", "neighbour_table", "parent_table", "vote_table"]

app = typer.Typer()

DEFAULT_KS = "1,2,3,5,10,20,30,50"


@app.command()
@reads_files
def teacher(
    source: Annotated[
        str,
        typer.Argument(metavar="MODEL_OR_FILE", help="A model with a teacher, or training texts."),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text, or - to read it from stdin.")
    ] = None,
    *,
    recall: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Texts with labels: how many of these are found, by k."),
    ] = None,
    ks: Annotated[
        str, typer.Option("--k", "-k", help="Numbers of neighbours to measure --recall for.")
    ] = DEFAULT_KS,
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="Whose settings to use with a training file.")
    ] = "treaderxml",
    override: Override = None,
    labels: Labels = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Show the training texts most similar to a text and the labels they suggest."""
    content, cut_offs = _content(text, recall), parse_ks(ks)
    if (Path(source) / "glocal.toml").is_file():
        _check_no_settings(override, labels)
        made, space = _stored(Path(source))
    else:
        made, space = _made(source, recipe, override or (), labels, reading)
    if recall is None:
        found = made.similar_texts(content)
        _print(found.to_dict() if as_json else None, _explanation_tables(found))
    else:
        rows = _measure(made, space, recall, cut_offs, reading)
        document = {"recall": [row.to_dict() for row in rows]} if as_json else None
        _print(document, [_recall_table(rows, recall)])


def _content(text: str | None, recall: str | None) -> str:
    if (text is None) == (recall is None):
        raise ConfigError(
            "give either a text to look up, or texts with labels to measure on with --recall FILE"
        )
    content = sys.stdin.read() if text == "-" else text or ""
    if recall is None and not content.strip():
        raise DataError("the text is empty; give one as the last argument, or - and one on stdin")
    from glocal.data.corpus import surrogate_in

    if problem := surrogate_in(content):
        raise DataError(problem)
    return content


def _check_no_settings(override: Sequence[str] | None, labels: str | None) -> None:
    if override or labels is not None:
        raise ConfigError(
            "a model's teacher has the settings and labels it was trained with; leave out --set "
            "and --labels, or give the training file instead of the model"
        )


def _stored(folder: Path) -> tuple[Teacher, LabelSpace]:
    """The teacher of a model directory."""
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.storage.model_directory import read_labels

    if not (folder / Teacher.folder).is_dir():
        raise ModelError(
            f"the model {folder} has no teacher; train one that has (`glocal train … --recipe "
            "treaderxml`), or give the training file instead of the model"
        )
    labels = read_labels(folder)
    return Teacher.load(folder / Teacher.folder, labels), labels


def _made(
    source: str, recipe: str, override: Sequence[str], labels: str | None, reading: dict[str, Any]
) -> tuple[Teacher, LabelSpace]:
    """A teacher of training texts."""
    from glocal.companions.companion import FitInputs
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.config import load_recipe
    from glocal.data.label_table import read_label_table
    from glocal.encoders.static import build_vectors
    from glocal.vocabulary.label_space import LabelSpace

    settings = load_recipe(recipe, override)
    corpus = read_file(source, require_labels=True, **reading)
    table = None if labels is None else read_label_table(labels)
    space = LabelSpace.build(corpus, table=table, min_count=settings.labels.min_count)
    names = [] if table is None else [*table.names, *table.descriptions]
    with console.progress_bar("word vectors", unit="passes") as progress:
        vectors = build_vectors(
            settings.teacher, settings.encoder, corpus, extra=names, progress=progress
        )
    with console.progress_bar("reading training texts") as progress:
        made = Teacher.fit(
            FitInputs(settings, corpus, space, table, vectors),
            progress=lambda _: progress,
        )
    return made, space


def _measure(
    made: Teacher, space: LabelSpace, path: str, ks: Sequence[int], reading: dict[str, Any]
) -> list[ScopeRecall]:
    from glocal.companions.teacher.recall import scope_recall

    corpus = read_file(path, **reading)
    with console.progress_bar("looking up similar texts") as progress:
        return scope_recall(made, corpus, space, ks=ks, progress=progress)


def _print(document: dict[str, Any] | None, tables: Sequence[Table]) -> None:
    if document is not None:
        typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for table in tables:
        console.stdout().print(table)


def _explanation_tables(found: TeacherExplanation) -> list[Table]:
    if not found.neighbours:
        console.note("No training text is similar: no word of the text is known.")
        return []
    tables = [neighbour_table(found), vote_table(found)]
    return [*tables, parent_table(found)] if found.parents else tables


def neighbour_table(found: TeacherExplanation) -> Table:
    """The similar training texts."""
    table = _table("Similar training texts", "similarity", "id", "labels")
    for neighbour in found.neighbours:
        table.add_row(f"{neighbour.similarity:.3f}", neighbour.id, ", ".join(neighbour.labels))
    return table


def vote_table(found: TeacherExplanation) -> Table:
    """The labels they vote for."""
    table = _table("Votes", "weight", "label", "about", "voted for by")
    for vote in found.votes:
        givers = ", ".join(vote.neighbours)
        table.add_row(f"{vote.weight:.3f}", vote.label, vote.description, givers)
    return table


def parent_table(found: TeacherExplanation) -> Table:
    """The labels added above them."""
    table = _table("Parents added", "", "label", "about", "above")
    for parent in found.parents:
        table.add_row("", parent.label, parent.description, ", ".join(parent.children))
    return table


def _recall_table(rows: Sequence[ScopeRecall], name: str) -> Table:
    bands = list(rows[0].bands)
    title = f"Gold labels of {name} inside the scope, %"
    table = _table(
        title, "k", "all", *bands, "labels in a scope", "full scopes, %", justify="right"
    )
    for row in rows:
        shares = [row.recall, *row.bands.values()]
        recalls = [f"{100 * share:.1f}" for share in shares]
        table.add_row(str(row.k), *recalls, f"{row.labels:.1f}", f"{100 * row.cut:.1f}")
    return table


def _table(title: str, *columns: str, justify: Any = "left") -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify=justify if number else "right", overflow="fold")
    return table
