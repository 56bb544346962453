"""`glocal teacher`: similar training texts, the labels they vote for, the labels added above.

The teacher comes from a model, or is built from a training file, which needs no training.
`--recall` measures how many labels of other texts are among the labels suggested.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file, read_labels_file
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError, ModelError
from glocal.table import Column, Table, columns

if TYPE_CHECKING:
    from glocal.companions.teacher.recall import ScopeRecall
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.vocabulary.label_space import LabelSpace

app = typer.Typer()

DEFAULT_KS = "1,2,3,5,10,20,30,50"
SHOWN = 8  # rows of a table, and entries of a cell, that are shown without --all


@app.command()
@options.reads_files
def teacher(
    source: Annotated[
        str, argument("A model with a teacher, or training texts.", metavar="MODEL_OR_FILE")
    ],
    text: Annotated[
        str | None, argument("The text, or - to read it from stdin.", metavar="TEXT")
    ] = None,
    *,
    recall: Annotated[
        str | None, option("Labelled texts: how many of their labels are found.", metavar="FILE")
    ] = None,
    ks: Annotated[str, option("Numbers of neighbours for --recall.", "--k", "-k")] = DEFAULT_KS,
    recipe: options.RecipeName = "treaderxml",
    override: options.Override = None,
    labels: options.Labels = None,
    everything: Annotated[bool, option("Show every neighbour, vote and parent.", "--all")] = False,
    reading: options.Reading,
) -> None:
    """Show similar training texts and the labels they suggest.

    The teacher comes from a model, or is built from training texts, which takes no training. With
    --recall the share of other texts' labels that it suggests is measured.
    """
    content, cut_offs = _content(text, recall), options.parse_ks(ks)
    if (Path(source) / "glocal.toml").is_file():
        _check_no_settings(override, labels)
        made, space = _stored(Path(source))
    else:
        made, space = _made(source, recipe, override or (), labels, reading)
    if recall is not None:
        rows = _measure(made, space, recall, cut_offs, reading)
        document = {"recall": [row.to_dict() for row in rows]}
        console.show(document, [_recall_table(rows, recall)])
        return
    found = made.similar_texts(content)
    if not found.neighbours:
        console.note("No training text is similar: no word of the text is known.")
    tables = _tables(found, None if everything else SHOWN)
    console.show(found.to_dict(), tables)


def _content(text: str | None, recall: str | None) -> str:
    if (text is None) == (recall is None):
        raise ConfigError(
            "give either a text to look up, or labelled texts to measure on with --recall FILE"
        )
    return "" if text is None else options.given_text(text)


def _check_no_settings(override: Sequence[str] | None, labels: str | None) -> None:
    if override or labels is not None:
        raise ConfigError(
            "the teacher of a model keeps the settings and labels it was trained with; leave out "
            "--set and --labels, or give the training file instead of the model"
        )


def _stored(folder: Path) -> tuple[Teacher, LabelSpace]:
    """Return the teacher and the labels of a model directory."""
    from glocal.companions.teacher.teacher_model import Teacher
    from glocal.storage.integrity import check_model
    from glocal.storage.model_directory import read_labels

    if not (folder / Teacher.folder).is_dir():
        raise ModelError(
            f"the model {folder} has no teacher; train one with `--recipe treaderxml`, or give "
            "the training file instead of the model"
        )
    check_model(folder)
    labels = read_labels(folder)
    return Teacher.load(folder / Teacher.folder, labels), labels


def _made(
    source: str, recipe: str, override: Sequence[str], labels: str | None, reading: dict[str, Any]
) -> tuple[Teacher, LabelSpace]:
    """Build a teacher from training texts; returns it and the labels."""
    from glocal.companions.teacher.teacher_lookup import teacher_from_texts
    from glocal.config import load_recipe
    from glocal.config.resolve import check
    from glocal.encoders.read_facts import read_encoder_facts

    settings = load_recipe(recipe, override)
    check(settings, read_encoder_facts, has_label_table=labels is not None)
    corpus = read_file(source, require_labels=True, **reading)
    table = read_labels_file(labels)
    with console.progress_bar("building the teacher") as progress:
        return teacher_from_texts(settings, corpus, table, progress=lambda _stage: progress)


def _measure(
    made: Teacher, space: LabelSpace, path: str, ks: Sequence[int], reading: dict[str, Any]
) -> list[ScopeRecall]:
    from glocal.companions.teacher.recall import scope_recall

    corpus = read_file(path, **reading)
    with console.progress_bar("looking up similar texts") as progress:
        return scope_recall(made, corpus, space, ks=ks, progress=progress)


def _tables(found: TeacherExplanation, most: int | None) -> list[Table]:
    """Return similar texts, their votes and the labels added above these, the first of each."""
    texts = [(f"{n.similarity:.3f}", n.id, _listed(n.labels, most)) for n in found.neighbours]
    votes = [
        (f"{vote.weight:.3f}", vote.label, vote.description, _listed(vote.neighbours, most))
        for vote in found.votes
    ]
    parents = [(p.label, p.description, _listed(p.children, most)) for p in found.parents]
    tables = [
        Table("Similar training texts", columns("text", "similarity", "id", "labels"), texts),
        Table("Votes", columns("text", "weight", "label", "about", "voted for by"), votes),
        Table("Parents added", columns("text", "label", "about", "above"), parents),
    ]
    for table in tables:
        if most and len(table.rows) > most:
            table.note = f"… and {len(table.rows) - most:,} more; --all shows them"
            del table.rows[most:]
    return [table for table in tables if table.rows]


def _listed(items: Sequence[str], most: int | None) -> str:
    more = f", … ({len(items)} in all)" if most and len(items) > most else ""
    return ", ".join(items[:most]) + more


def _recall_table(rows: Sequence[ScopeRecall], name: str) -> Table:
    heads = [Column("k", "count"), *columns("share", "all", *rows[0].bands)]
    heads += [Column("labels in a scope", "number"), Column("full scopes, %", "share")]
    cells = [(row.k, row.recall, *row.bands.values(), row.labels, row.cut) for row in rows]
    return Table(f"Gold labels of {name} inside the scope, %", heads, cells)
