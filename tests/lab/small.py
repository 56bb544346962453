"""A table of two variants that train in a second, and its runner."""

from glocal.lab.experiment.jobs import Conditions, Splits
from glocal.lab.variant_tables import Variant, VariantTable, resolve, variant_runner
from tests.tiny import FAST, tiny_corpus

TABLE = VariantTable(
    "small",
    "A small table",
    "me-xml",
    (
        Variant("one", "one expert", {"experts": ["D-last"]}, {"combined": [80.0, 70.0, 60.0]}),
        Variant("two", "two experts", {"experts": ["D-last", "A-1"]}),
    ),
    published="nowhere",
)


def small_splits(**changes):
    parts = {"train": tiny_corpus(32), "dev": tiny_corpus(8, 1), "test": tiny_corpus(12, 2)}
    return Splits(**{**parts, **changes})


def small_runner(out, *overrides, table=TABLE, splits=None, divergence=False, reuse=()):
    recipes = resolve(table, [*FAST, *overrides])
    conditions = Conditions("cpu", divergence=divergence)
    return variant_runner(
        table, recipes, splits or small_splits(), conditions, out=out, reuse=reuse
    )
