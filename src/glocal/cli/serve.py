"""`glocal serve`: models as a REST service with a web page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from glocal.cli import console, options
from glocal.cli.parameters import argument, option
from glocal.errors import require

app = typer.Typer()


@app.command()
def serve(
    models: Annotated[
        list[Path],
        argument("Model directories; the first is the default.", metavar="MODEL"),
    ],
    *,
    host: Annotated[
        str,
        option("Address to listen on; others than loopback need a key.", metavar="ADDRESS"),
    ] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 for a free one.", min=0, max=65_535)] = 8000,
    api_key_file: Annotated[
        Path | None,
        option("File with the API keys, one on each line.", metavar="FILE"),
    ] = None,
    feedback: Annotated[
        Path | None,
        option("Folder for corrections; without it none are accepted.", metavar="DIR"),
    ] = None,
    similar_texts: Annotated[
        Path | None,
        option(
            "Training texts; explanations show the most similar of them.",
            metavar="FILE",
        ),
    ] = None,
    language: Annotated[
        str, option("Language of texts and labels, for Annif's clients.", metavar="CODE")
    ] = "und",
    route: Annotated[
        list[str] | None,
        option(
            "Model for texts of a language, in requests that name none; may be repeated.",
            metavar="LANGUAGE=MODEL",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        option("Change a limit; may be repeated.", metavar="NAME=NUMBER"),
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Serve models: a REST interface and a web page.

    Models are loaded when they are first used, and again when their files change. Ctrl-C stops the
    server after the requests it has accepted.
    """
    for module in ("fastapi", "uvicorn", "python_multipart", "simplemma"):
        require(module, extra="serve", purpose="the server")

    from glocal.predict.language_routing import parse_routes
    from glocal.serve.serve_settings import ServeSettings, parse_limits, read_api_keys
    from glocal.serve.server import serve as run

    settings = ServeSettings(
        models=tuple(models),
        host=host,
        port=port,
        api_keys=() if api_key_file is None else read_api_keys(api_key_file),
        feedback=feedback,
        similar_texts=similar_texts,
        language=language,
        routes=parse_routes(route or ()),
        device=device,
        limits=parse_limits(limit or ()),
    )

    def announce(url: str) -> None:
        if console.settings.as_json:
            console.print_json({"url": url})
            sys.stdout.flush()
        else:
            console.note(f"Serving on {url} (Ctrl-C stops)")

    run(settings, on_start=announce)
