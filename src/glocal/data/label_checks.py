"""Warnings about labels that were probably not meant as they were read."""

from __future__ import annotations

import re

import pyarrow.compute as pc

from glocal.data.corpus import Corpus
from glocal.data.formats.separators import commas_separate
from glocal.errors import DataError, Remedy

MANY = 0.1  # share of labels with a separator inside
FEW_IDS = 0.8  # share of labels that look like an id where all of them are ids
SHOWN = 3
SAMPLE = 100_000  # labels looked at
ID = re.compile(r"[a-z]+:\S+|(?=\S*\d)[\w.:/#-]+", re.IGNORECASE)


def label_warnings(corpus: Corpus) -> list[DataError]:
    """Return warnings about labels that look wrong; none is raised.

    - Many labels contain a separator, so that several labels may have become one.
    - No label occurs in two documents, so that nothing can be learnt.
    """
    counts = pc.value_counts(pc.list_flatten(corpus.table.column("labels")))
    labels = [str(value) for value in counts.field("values")[:SAMPLE].to_pylist()]
    if not labels:
        return []
    warnings = [w for separator in ";|,\t\n" if (w := _contain(labels, separator, corpus.source))]
    if len(corpus) > 1 and pc.max(counts.field("counts")).as_py() == 1:
        warnings.append(
            DataError(
                f"no label occurs in two documents ({_shown(labels)}), so nothing can be learnt "
                "from them; check that the field of the labels is right",
                path=corpus.source,
                remedies=[
                    Remedy("labels_field", "name another field", value="…"),
                    Remedy("label_separator", "split them", value="…"),
                ],
            )
        )
    return warnings


def missing_table_hint(corpus: Corpus) -> DataError | None:
    """Return a hint at a label table if the labels look like ids; it is not raised."""
    counts = pc.value_counts(pc.list_flatten(corpus.table.column("labels")))
    labels = [str(value) for value in counts.field("values")[:SAMPLE].to_pylist()]
    if not labels or sum(bool(ID.fullmatch(label)) for label in labels) < FEW_IDS * len(labels):
        return None
    return DataError(
        f"the labels look like ids ({_shown(labels)}), and there is no label table; a file with "
        "their names (id, name) makes tags readable and helps rare labels",
        path=corpus.source,
        remedies=[Remedy("label_table", "give it", value="…")],
    )


def _contain(labels: list[str], separator: str, source: str) -> DataError | None:
    """Return a warning if many labels contain a separator."""
    inside = [label for label in labels if separator in label.strip()]
    if len(inside) <= MANY * len(labels):
        return None
    if separator == "," and not commas_separate(labels):
        return None
    return DataError(
        f"{len(inside):,} of {len(labels):,} labels contain {separator!r} ({_shown(inside)}); "
        "several labels may have become one",
        path=source,
        remedies=[Remedy("label_separator", "split them", value=repr(separator))],
    )


def _shown(labels: list[str]) -> str:
    more = ", …" if len(labels) > SHOWN else ""
    return ", ".join(f"{label!r:.60}" for label in labels[:SHOWN]) + more
