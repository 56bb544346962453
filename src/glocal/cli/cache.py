"""`glocal cache`: show and clear the folder of derived data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.parameters import argument
from glocal.table import Table, columns

if TYPE_CHECKING:
    from glocal.data.cache_contents import CacheEntry

app = typer.Typer(
    help="Show or clear the cache, which is rebuilt when needed.",
    no_args_is_help=True,
)


@app.command()
def show() -> None:
    """Show what the cache holds, with sizes."""
    from glocal.data.cache import cache_dir
    from glocal.data.cache_contents import cache_contents

    folder, entries = cache_dir(create=False), cache_contents()
    rows = [(e.name, e.about, e.n_entries, format_bytes(e.n_bytes)) for e in entries]
    total = format_bytes(sum(entry.n_bytes for entry in entries))
    heads = [*columns("text", "folder", "about"), *columns("count", "entries", "size")]
    document = {"folder": str(folder), "entries": list(map(_as_dict, entries))}
    table = Table(str(folder), heads, [*rows, ("all", "", "", total)])
    console.show(document, [table])
    console.note("Set GLOCAL_CACHE to keep it elsewhere; `glocal cache clear` empties it.")


@app.command()
def clear(
    names: Annotated[
        list[str] | None,
        argument("Folders of the cache; all of them by default.", metavar="FOLDER"),
    ] = None,
) -> None:
    """Remove what the cache holds."""
    from glocal.data.cache_contents import clear_cache

    removed = clear_cache(names or ())
    console.show({"removed": list(map(_as_dict, removed))})
    freed = format_bytes(sum(entry.n_bytes for entry in removed))
    listed = f" ({', '.join(entry.name for entry in removed)})" if removed else ""
    console.note(f"Removed {freed}{listed}.")


def _as_dict(entry: CacheEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": str(entry.path),
        "entries": entry.n_entries,
        "bytes": entry.n_bytes,
    }


def format_bytes(number: float) -> str:
    """Return a size such as `1.5 GB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
