"""`glocal ablate`: train the variants of a table under one budget and compare them."""

from __future__ import annotations

from typing import Annotated

import typer

from glocal.cli import options
from glocal.cli.parameters import argument, option
from glocal.cli.studies import Study, Train, read_splits, runs_study

app = typer.Typer()


@app.command()
@options.reads_files
@runs_study
def ablate(
    table: Annotated[str, argument("A table's name, or a path ending in .toml.", metavar="TABLE")],
    train: Train,
    *,
    labels: options.Labels = None,
    only: Annotated[
        list[str] | None, option("Only the variant of this name; may be repeated.")
    ] = None,
    seeds: Annotated[
        str | None, option("Train every variant from each seed, such as 0,1,2; tables show means.")
    ] = None,
    study: Study,
    reading: options.Reading,
) -> None:
    """Train the variants of a table and compare them.

    Tables: glocalxml-table3, glocalxml-table4, me-xml-table2, me-xml-table4, treaderxml-table3,
    treaderxml-table3-paper, treaderxml-additions, aplc-figure4, aplc-figure5, or a TOML file. When
    the command is repeated, finished variants are skipped and interrupted ones resume.
    """
    from glocal.config import parse_override
    from glocal.errors import ConfigError
    from glocal.lab.seeds import SEED, check_seeds, over_seeds, parse_seeds, seeded_name
    from glocal.lab.variant_tables import load_table, resolve, select

    asked = load_table(table)
    chosen = [variant.name for variant in select(asked.variants, only or ())]
    variants, numbers = asked, [] if seeds is None else parse_seeds(seeds)
    if numbers:
        if any(parse_override(text)[0] == SEED for text in study.override or ()):
            raise ConfigError("--seeds and -s train.seed exclude each other; give one of them")
        variants = over_seeds(asked, numbers)
        chosen = [seeded_name(name, number) for name in chosen for number in numbers]
    recipes = resolve(variants, study.override or (), recipe=study.recipe)
    check_seeds(recipes.values(), numbers)
    study.check()
    splits = read_splits(train, study.dev, study.test, reading, labels=labels)

    from glocal.lab.ablation import Ablation

    study.run(
        variants,
        recipes,
        splits,
        lambda results: Ablation(asked, recipes, splits, results, seeds=numbers),
        chosen=chosen,
        folder=study.out,
    )
