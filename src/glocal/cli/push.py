"""`glocal push`: a model copied to a folder, or pushed to the Hugging Face hub."""

from __future__ import annotations

from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.parameters import option

app = typer.Typer()


@app.command()
def push(
    model: options.Model,
    *,
    to: Annotated[str, option("Folder, or hub id such as owner/name.", metavar="FOLDER|HUB-ID")],
    licence: Annotated[
        str | None, option("Licence for the card, such as apache-2.0.", metavar="NAME")
    ] = None,
    private: Annotated[bool, option("Make a new repository private.", "--private")] = False,
    overwrite: Annotated[bool, option("Replace an existing folder.", "--overwrite")] = False,
) -> None:
    """Share a model with its card, in a folder or on a hub.

    It is copied to a folder, or pushed to the Hugging Face hub under a name such as owner/name.
    `Tagger.from_pretrained` and `glocal predict` read it from either place.
    """
    from glocal.storage.hub import push_model

    place = push_model(model, to, licence=licence, private=private, overwrite=overwrite)
    console.show({"model": str(model), "place": str(place)})
    console.note(f"Pushed {model} to {place}.")
