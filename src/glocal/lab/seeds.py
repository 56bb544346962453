"""Seeds: a table with every variant trained from several, and the mean of its runs.

Every variant becomes one for each seed, so that runs resume and fail one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from glocal.config import Recipe
from glocal.errors import ConfigError
from glocal.lab.experiment.jobs import Result
from glocal.lab.variant_tables import Variant, VariantTable

SEED = "train.seed"


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as `0,1,2`.

    Raises:
        ConfigError: If the text is not a list of different whole numbers.
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"seeds '{text}': expected whole numbers, such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds '{text}': a seed is given twice; expected different ones")
    return seeds


def seeded_name(name: str, seed: int) -> str:
    """Return the name of a variant with a seed."""
    return f"{name}-seed-{seed}"


def over_seeds(table: VariantTable, seeds: Sequence[int]) -> VariantTable:
    """Return the table with every variant once for each seed.

    Raises:
        ConfigError: If variants set seeds of their own.
    """
    own = [variant.name for variant in table.variants if SEED in variant.settings]
    if own:
        raise ConfigError(
            f"'{own[0]}' of '{table.name}' sets train.seed itself, so the table cannot be trained "
            "from several seeds"
        )
    variants = tuple(
        Variant(
            seeded_name(variant.name, seed),
            f"{variant.title}, seed {seed}",
            {**variant.settings, SEED: seed},
        )
        for variant in table.variants
        for seed in seeds
    )
    return replace(table, variants=variants)


def check_seeds(recipes: Iterable[Recipe], seeds: Sequence[int]) -> None:
    """Refuse seeds whose models would have members in common.

    Raises:
        ConfigError: With seeds that are far enough apart.
    """
    from glocal.train.budget import MEMBERS

    # Where the number of members is left open, there may be this many.
    members = max(recipe.train.members or MEMBERS for recipe in recipes)
    if any(b - a < members for a, b in pairwise(sorted(seeds))):
        apart = ",".join(str(members * number) for number in range(len(seeds)))
        raise ConfigError(
            f"seeds {','.join(map(str, seeds))}: a model of {members} members uses its seed and "
            f"those after it, so seeds must lie {members} apart, such as {apart}"
        )


def merge_runs(
    runs: Sequence[Result],
    name: str,
    title: str,
    of: Callable[[Sequence[float]], float] = fmean,
) -> Result:
    """Merge the runs of a variant into one result, its scores their mean (or spread)."""
    report = {key: _merge([run.report[key] for run in runs], of) for key in ("scores", "macro")}
    seconds = fmean(run.cost["train_seconds"] for run in runs)
    method = replace(runs[0].method, name=name, title=title)
    return replace(runs[0], method=method, cost={"train_seconds": seconds}, report=report)


def _merge(values: Sequence[Any], of: Callable[[Sequence[float]], float]) -> Any:
    """Merge mappings into one of the keys they all have; other values become None."""
    first = values[0]
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in value for value in values)]
        return {key: _merge([value[key] for value in values], of) for key in shared}
    numbers = [value for value in values if isinstance(value, int | float)]
    return of(numbers) if len(numbers) == len(values) else None
