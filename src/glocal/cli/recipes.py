"""`glocal recipes`: the built-in recipes, and every setting of one with its meaning.

The output of `recipes show NAME` is itself a valid recipe: save it, edit it, train with its path.
"""

from __future__ import annotations

import typer

from glocal.cli import console, options
from glocal.table import Table, columns

WHEN = {
    "fast": "no GPU, or an answer within minutes",
    "balanced": "a GPU, or hours on a CPU",
    "large": "a GPU; first run `glocal encoders get mpnet`",
    "best": "highest accuracy, about 3× the cost of large",
    "auto": "chooses one of these for you; give a --budget if time is short",
}

app = typer.Typer(help="List the built-in recipes, or show one with all its settings.")


@app.callback(invoke_without_command=True)
def recipes(ctx: typer.Context) -> None:
    """List the built-in recipes, or show one with all its settings."""
    if ctx.invoked_subcommand is None:
        list_recipes()


@app.command("list")
def list_recipes() -> None:
    """List the built-in recipes."""
    from glocal.config import PRESETS, load_recipe, recipe_names

    rows = {name: load_recipe(name) for name in recipe_names()}
    document = [{"name": name, "description": r.description} for name, r in rows.items()]
    presets = [(name, WHEN[name], rows.pop(name).description) for name in PRESETS]
    others = [
        (name, recipe.encoder.name, " + ".join(recipe.experts), recipe.description)
        for name, recipe in rows.items()
    ]
    tables = [
        Table("", columns("text", "preset", "for", "about"), presets),
        Table("", columns("text", "recipe", "encoder", "experts", "about"), others),
    ]
    console.show(document, tables)
    console.note("`glocal recipes show NAME` prints every setting of one.")


@app.command()
def show(
    name: options.RecipeArgument,
    *,
    override: options.Override = None,
) -> None:
    """Print a recipe as TOML, with a comment for every setting."""
    from glocal.config import load_recipe, recipe_to_mapping
    from glocal.config.toml import documented_toml

    if console.settings.as_json:
        console.print_json(recipe_to_mapping(load_recipe(name, override or ())))
        return
    typer.echo(documented_toml(load_recipe(name, override or ())), nl=False)
