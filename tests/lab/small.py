"""A table of two variants that train in a second, and its study."""

import os

from glocal.lab.study import Study, StudyData
from glocal.lab.variant_tables import Variant, VariantTable, resolve
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


def dies(job, threads):
    """Stands for a process that the system kills; here, where it starts without torch."""
    os._exit(9)


def small_data(**changes):
    parts = {"train": tiny_corpus(32), "dev": tiny_corpus(8, 1), "test": tiny_corpus(12, 2)}
    return StudyData(**{**parts, **changes})


def small_study(out, *overrides, table=TABLE, data=None, **options):
    recipes = resolve(table, [*FAST, *overrides])
    return Study(table.variants, recipes, data or small_data(), out=out, device="cpu", **options)
