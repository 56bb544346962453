"""`glocal ablate`: the variants of a table, trained under one budget and set side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.options import (
    AsJson,
    BatchSize,
    Device,
    Labels,
    Override,
    Reading,
    check_folder,
    reads_files,
)
from glocal.cli.studies import (
    Dev,
    Out,
    Overwrite,
    Parallel,
    Plots,
    RecipeName,
    Reuse,
    Test,
    Train,
    check_reuse,
    read_study_data,
    run_study,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glocal.lab.study import Outcome

__all__ = ["app"]

app = typer.Typer()


@app.command()
@reads_files
def ablate(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table's name, or a path ending in .toml.")
    ],
    train: Train,
    *,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    labels: Labels = None,
    recipe: RecipeName = None,
    override: Override = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only the variant of this name; may be repeated.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Train every variant from each of these, such as 0,1,2; gives means."),
    ] = None,
    parallel: Parallel = 1,
    overwrite: Overwrite = False,
    reuse: Reuse = None,
    plots: Plots = True,
    as_json: AsJson = False,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    reading: Reading,
) -> None:
    """Train the variants of a table and compare them.

    Tables: glocalxml-table3, glocalxml-table4, me-xml-table2, me-xml-table4, treaderxml-table3,
    aplc-figure4, aplc-figure5, or a TOML file. When the command is repeated, finished variants are
    skipped and interrupted ones resume.
    """
    from glocal.config import parse_override
    from glocal.errors import ConfigError
    from glocal.lab.variant_tables import (
        check_seeds,
        load_table,
        over_seeds,
        parse_seeds,
        resolve,
        seeded_name,
        select,
    )

    asked = load_table(table)
    chosen = [variant.name for variant in select(asked.variants, only or ())]
    variants, numbers = asked, []
    if seeds is not None:
        numbers = parse_seeds(seeds)
        if any(parse_override(text)[0] == "train.seed" for text in override or ()):
            raise ConfigError("--seeds and -s train.seed exclude each other; give one of them")
        variants = over_seeds(asked, numbers)
        chosen = [seeded_name(name, number) for name in chosen for number in numbers]
    recipes = resolve(variants, override or (), recipe=recipe)
    if numbers:
        check_seeds(recipes.values(), numbers)
    if plots:
        from glocal.lab.plots import check_plots

        check_plots()
    check_folder(out)
    check_reuse(reuse or (), overwrite=overwrite)
    data = read_study_data(train, dev, test, reading, labels=labels)

    from glocal.lab.ablation import Ablation
    from glocal.lab.seeds import SeededAblation
    from glocal.lab.study import Study

    study = Study(
        variants.variants,
        recipes,
        data,
        out=out,
        device=device,
        batch_size=batch_size,
        reuse=reuse or (),
    )

    def result_of(outcomes: Sequence[Outcome]) -> Ablation:
        if numbers:
            return SeededAblation(asked, recipes, data, outcomes, numbers)
        return Ablation(asked, recipes, data, outcomes)

    run_study(
        study,
        chosen,
        result_of,
        out=out,
        parallel=parallel,
        overwrite=overwrite,
        plots=plots,
        as_json=as_json,
    )
