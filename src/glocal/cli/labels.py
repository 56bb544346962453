"""`glocal labels`: read vocabularies, and change the labels of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.corpora import read_label_list
from glocal.cli.options import AsJson, adds_options

app = typer.Typer(
    name="labels",
    no_args_is_help=True,
)


@app.callback()
def labels() -> None:
    """Convert vocabularies to label tables."""


def _choice(
    *,
    languages: Annotated[
        str, typer.Option(metavar="CODES", help="Languages of the names, most wanted first.")
    ] = "en",
    scheme: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only concepts of this scheme; may be repeated."),
    ] = None,
    concept_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="ID", help="Only concepts of this type; may be repeated."),
    ] = None,
    branch: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only this concept and those below; may be repeated."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="FILE", help="Only the ids in this file, one per line.")
    ] = None,
    exclude_scheme: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="No concepts of this scheme; may be repeated."),
    ] = None,
    exclude_type: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="No concepts of this type; may be repeated."),
    ] = None,
    exclude_branch: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Not this concept, nor those below; may be repeated."),
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(metavar="FILE", help="Not the ids in this file, one per line.")
    ] = None,
    deprecated: Annotated[
        bool, typer.Option("--deprecated", help="Take deprecated concepts too.")
    ] = False,
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
@adds_options(_choice, "choice")
def convert(
    vocabulary: Annotated[
        str,
        typer.Argument(
            metavar="VOCABULARY", help="SKOS (.ttl, .rdf, .jsonld, .nt), TSV, CSV, JSONL, Parquet."
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Label table to write."),
    ],
    as_json: AsJson = False,
    choice: Any,
) -> None:
    """Convert a vocabulary to a label table.

    Any label table is accepted, so that filters work on all of them; schemes, types and deprecated
    concepts are known in SKOS alone.
    """
    from glocal.data.writers import check_writable_format
    from glocal.vocabulary.label_table import read_label_table
    from glocal.vocabulary.label_writer import write_label_table

    check_writable_format(out)
    with console.progress_bar("reading the vocabulary", unit="triples") as progress:
        table = read_label_table(vocabulary, choice=choice, progress=progress)
    write_label_table(table, out)
    if as_json:
        console.print_json({"path": str(out), "labels": len(table)})
    console.note(f"Wrote {len(table):,} labels to {out}.")
