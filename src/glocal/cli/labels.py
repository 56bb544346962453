"""`glocal labels`: read vocabularies, and change the labels of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console, options
from glocal.cli.corpora import read_file, read_label_list, read_labels_file
from glocal.cli.parameters import argument, option
from glocal.errors import ConfigError

if TYPE_CHECKING:
    from glocal.update.label_update import LabelUpdate
    from glocal.vocabulary.label_names import NamedLabels

app = typer.Typer(
    name="labels",
    help="Change the labels of a model; convert vocabularies.",
    no_args_is_help=True,
)


def _choice(
    *,
    languages: Annotated[
        str, option("Languages of the names, most wanted first.", metavar="CODES")
    ] = "en",
    scheme: Annotated[
        list[str] | None,
        option("Only concepts of this scheme; may be repeated.", metavar="ID"),
    ] = None,
    concept_type: Annotated[
        list[str] | None,
        option("Only concepts of this type; may be repeated.", "--type", metavar="ID"),
    ] = None,
    branch: Annotated[
        list[str] | None,
        option("Only this concept and those below; may be repeated.", metavar="ID"),
    ] = None,
    only: Annotated[
        str | None, option("Only the ids in this file, one per line.", metavar="FILE")
    ] = None,
    exclude_scheme: Annotated[
        list[str] | None,
        option("No concepts of this scheme; may be repeated.", metavar="ID"),
    ] = None,
    exclude_type: Annotated[
        list[str] | None,
        option("No concepts of this type; may be repeated.", metavar="ID"),
    ] = None,
    exclude_branch: Annotated[
        list[str] | None,
        option("Not this concept, nor those below; may be repeated.", metavar="ID"),
    ] = None,
    exclude: Annotated[
        str | None, option("Not the ids in this file, one per line.", metavar="FILE")
    ] = None,
    deprecated: Annotated[bool, option("Take deprecated concepts too.", "--deprecated")] = False,
) -> Any:
    """Return the choice of concepts."""
    from glocal.vocabulary.concept_choice import ConceptChoice

    return ConceptChoice(
        languages=tuple(code.strip() for code in languages.split(",")),
        schemes=tuple(scheme or ()),
        types=tuple(concept_type or ()),
        branches=tuple(branch or ()),
        ids=tuple(read_label_list(only) or ()),
        exclude_schemes=tuple(exclude_scheme or ()),
        exclude_types=tuple(exclude_type or ()),
        exclude_branches=tuple(exclude_branch or ()),
        exclude_ids=tuple(read_label_list(exclude) or ()),
        deprecated=deprecated,
    )


@app.command()
@options.reads_files
def add(
    model: options.Model,
    labels: Annotated[
        str, argument("Label table or vocabulary of the new labels.", metavar="LABELS")
    ],
    *,
    examples: Annotated[
        str | None, option("Texts that have the new labels.", metavar="FILE")
    ] = None,
    train: Annotated[
        str | None,
        option("Training texts to compare with, where the model keeps too few."),
    ] = None,
    device: options.Device = "auto",
    reading: options.Reading,
) -> None:
    """Give a model labels it has never seen.

    Labels without examples are recognised by their names. Other labels keep their scores.
    """
    from glocal.storage.model_directory import read_labels
    from glocal.update.label_update import add_labels

    table = read_labels_file(labels)
    assert table is not None
    known: list[NamedLabels | None] = [table, read_labels(model)]
    shown = read_file(examples, known=known, require_labels=True, **reading) if examples else None
    texts = read_file(train, known=known, **reading) if train else None
    with console.progress_bar("reading examples") as progress:
        update = add_labels(
            model, table, examples=shown, train=texts, device=device, progress=progress
        )
    _report(update, f"Added {_count(update.labels)}")


@app.command()
def remove(
    model: options.Model,
    labels: Annotated[list[str] | None, argument("Ids of the labels.", metavar="LABEL")] = None,
    *,
    listed: Annotated[
        str | None, option("Ids from a file, one per line.", "--from", metavar="FILE")
    ] = None,
) -> None:
    """Remove labels from a model."""
    from glocal.update.label_update import remove_labels

    ids = [*(labels or ()), *(read_label_list(listed) or ())]
    if not ids:
        raise ConfigError("no labels to remove; give their ids, or a file of them with --from")
    update = remove_labels(model, ids)
    _report(update, f"Removed {_count(update.labels)}")


@app.command()
def rename(
    model: options.Model,
    label: Annotated[str, argument("Id of the label.", metavar="LABEL")],
    new_id: Annotated[str | None, argument("Its new id.", metavar="NEW")] = None,
    *,
    name: Annotated[str | None, option("Its new name.")] = None,
) -> None:
    """Give a label of a model another id or name."""
    from glocal.update.label_update import rename_labels

    if new_id is None and name is None:
        raise ConfigError("nothing to change; give a new id, or a new name with --name")
    ids = {} if new_id is None else {label: new_id}
    update = rename_labels(model, ids, names={} if name is None else {label: name})
    _report(update, f"Renamed {label}")


@app.command()
def merge(
    model: options.Model,
    labels: Annotated[list[str], argument("Ids of the labels that disappear.", metavar="LABEL")],
    *,
    into: Annotated[str, option("The label that takes their place.", metavar="ID")],
) -> None:
    """Merge labels of a model into one."""
    from glocal.update.label_update import merge_labels

    update = merge_labels(model, labels, into=into)
    _report(update, f"Merged {', '.join(update.labels)} into {into}")


def _count(labels: Sequence[str]) -> str:
    """Return how many labels there are, in words."""
    return "1 label" if len(labels) == 1 else f"{len(labels):,} labels"


def _report(update: LabelUpdate, done: str) -> None:
    console.show({**vars(update), "path": str(update.path), "labels": list(update.labels)})
    console.note(f"{done}; the model has {update.n_labels:,} labels.")


@app.command()
@options.adds_options(_choice, "choice")
def convert(
    vocabulary: Annotated[
        str,
        argument(
            "SKOS (.ttl, .rdf, .jsonld, .nt), TSV, CSV, JSONL, Parquet.", metavar="VOCABULARY"
        ),
    ],
    *,
    out: Annotated[
        Path,
        option("Label table to write.", "--out", "-o", metavar="FILE"),
    ],
    choice: Any,
) -> None:
    """Convert a vocabulary to a label table.

    Any label table is accepted, so that filters work on all of them; schemes, types and deprecated
    concepts are known in SKOS alone.
    """
    from glocal.data.writers import check_writable_format
    from glocal.vocabulary.label_table import write_label_table

    check_writable_format(out)
    table = read_labels_file(vocabulary, choice=choice)
    assert table is not None
    write_label_table(table, out)
    console.show({"path": str(out), "labels": len(table)})
    console.note(f"Wrote {_count(table.ids)} to {out}.")
