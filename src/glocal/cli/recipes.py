"""`glocal recipes`: the built-in recipes, and every setting of one with its meaning.

The output of `recipes show NAME` is itself a valid recipe: save it, edit it, train with its path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Annotated, Any

import typer

from glocal.cli import console
from glocal.cli.options import Override

__all__ = ["app", "documented_toml"]

WHEN = {
    "fast": "no GPU, or an answer within minutes",
    "balanced": "a GPU, or a CPU and hours",
    "best": "accuracy before all; three times the cost",
    "auto": "not sure; give a --budget if time is short",
}

app = typer.Typer(help="List the built-in recipes, or show one with all its settings.")


@app.callback(invoke_without_command=True)
def recipes(ctx: typer.Context) -> None:
    """List the built-in recipes, or show one with all its settings."""
    if ctx.invoked_subcommand is None:
        list_recipes()


@app.command("list")
def list_recipes(
    *, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False
) -> None:
    """List the built-in recipes."""
    from glocal.config import PRESETS, load_recipe, recipe_names

    rows = {name: load_recipe(name) for name in recipe_names()}
    if as_json:
        typer.echo(json.dumps([{"name": n, "description": r.description} for n, r in rows.items()]))
        return
    from rich.table import Table

    presets = Table("preset", "when", "what", box=None, pad_edge=False)
    for name in PRESETS:
        presets.add_row(name, WHEN[name], rows.pop(name).description)
    table = Table("recipe", "encoder", "experts", "about", box=None, pad_edge=False)
    for name, recipe in rows.items():
        table.add_row(name, recipe.encoder.name, " + ".join(recipe.experts), recipe.description)
    console.stdout().print(presets)
    console.stdout().print()
    console.stdout().print(table)
    console.note("`glocal recipes show NAME` prints every setting of one.")


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A recipe's name, or a path ending in .toml.")
    ],
    *,
    override: Override = None,
) -> None:
    """Print a recipe as TOML, each key with its meaning."""
    from glocal.config import load_recipe

    typer.echo(documented_toml(load_recipe(name, override or ())), nl=False)


def documented_toml(recipe: Any) -> str:
    """The recipe as TOML with a comment for every key; reads back as the same recipe."""
    return "\n".join(_table(recipe, "")).lstrip("\n") + "\n"


def _table(section: Any, path: str) -> Iterator[str]:
    specs = [(spec, getattr(section, spec.name)) for spec in fields(section)]
    if path:
        first_line = (type(section).__doc__ or "").strip().splitlines()[0]
        yield from ("", f"# {first_line}", f"[{path}]")
    for spec, value in specs:
        if not is_dataclass(value) and not isinstance(value, Mapping):
            yield f"{_assignment(spec.name, value)}  # {_help(spec)}"
    for spec, value in specs:
        inner = f"{path}.{spec.name}" if path else spec.name
        if isinstance(value, Mapping):
            yield from ("", f"# {_help(spec)}", f"[{inner}]")
            yield from (_assignment(key, number) for key, number in value.items())
        elif is_dataclass(value):
            yield from _table(value, inner)


def _assignment(key: str, value: Any) -> str:
    from glocal.config import to_toml

    return to_toml({key: value}).strip()


def _help(spec: Field[Any]) -> str:
    choices = spec.metadata.get("choices")
    suffix = f" (one of: {', '.join(map(str, choices))})" if choices else ""
    return f"{spec.metadata.get('doc', '')}{suffix}"
