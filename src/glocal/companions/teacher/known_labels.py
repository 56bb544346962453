"""The labels a teacher can suggest: those of the label space, and the labels right above them.

- Parents come from the label table, with or without training texts; a label that is its own parent
  has none.
- Only direct parents are added, so cycles in the hierarchy have no effect; they are logged. Parents
  that the table does not have are skipped and logged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glocal.companions.teacher.descriptions import describe_labels
from glocal.config import TeacherConfig
from glocal.data.corpus import Corpus
from glocal.data.stored_arrays import check_range, read_columns
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelEntry, LabelTable, find_cycles

logger = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [("id", pa.string()), ("description", pa.string()), ("parents", pa.list_(pa.int32()))]
)


@dataclass(frozen=True)
class KnownLabels:
    """Labels, their descriptions and their parents.

    Args:
        ids: The labels of the label space in its order, then parents outside it.
        descriptions: A few words about each.
        parents: For each label, the places of those right above it.
    """

    ids: list[str]
    descriptions: list[str]
    parents: list[tuple[int, ...]]

    @classmethod
    def find(
        cls,
        train: Corpus,
        labels: LabelSpace,
        table: LabelTable | None,
        config: TeacherConfig,
    ) -> KnownLabels:
        """Collect the labels of a label space and those above them.

        Args:
            train: The training texts, whose words describe labels without a name.
            labels: The label space.
            table: Names and parents of labels.
            config: Whether to add the labels above, and the lengths of descriptions and texts.
        """
        facts = labels.ids, labels.names, labels.descriptions, labels.parents
        entries = list(map(LabelEntry, *facts))
        above = _parents(entries, table) if config.parents else [()] * len(entries)
        places = {entry.id: place for place, entry in enumerate(entries)}
        for parent in (parent for found in above for parent in found):
            if parent not in places and table is not None:
                entry = table.get(parent)
                assert entry is not None, "unknown parents were skipped"
                places[parent] = len(entries)
                entries.append(entry)
        described = describe_labels(entries, train, labels, config)
        rows = [tuple(places[parent] for parent in found) for found in above]
        rows += [()] * (len(entries) - len(rows))
        return cls([entry.id for entry in entries], described, rows)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def parent_matrix(self) -> Any:
        """The parents of each label: a CSR matrix of ones (labels, labels), or None."""
        from scipy.sparse import csr_matrix

        offsets = np.cumsum([0, *map(len, self.parents)])
        if not offsets[-1]:
            return None
        flat = np.array([place for row in self.parents for place in row], dtype=np.int64)
        return csr_matrix((np.ones(len(flat)), flat, offsets), shape=(len(self), len(self)))

    def save(self, path: Path) -> None:
        """Write the labels to a Parquet file."""
        columns: list[Any] = [self.ids, self.descriptions, self.parents]
        arrays = [pa.array(column, f.type) for column, f in zip(columns, SCHEMA, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), path)

    @classmethod
    def load(cls, path: Path) -> KnownLabels:
        """Read what `save` wrote."""
        table = read_columns(path, SCHEMA)
        above = table.column("parents").combine_chunks().flatten().to_numpy()
        check_range("the parents of labels", above, 0, table.num_rows)
        ids, descriptions, parents = (table.column(name).to_pylist() for name in SCHEMA.names)
        return cls(ids, descriptions, [tuple(row) for row in parents])


def _parents(entries: list[LabelEntry], table: LabelTable | None) -> list[tuple[str, ...]]:
    """Return the parents of each label that are in the table or are labels themselves."""
    known = {entry.id for entry in entries}
    given = [(table.get(entry.id) if table else None) or entry for entry in entries]
    unknown: list[tuple[str, str]] = []
    found = []
    for entry in given:
        usable = []
        for parent in entry.parents:
            if parent not in known and (table is None or parent not in table):
                unknown.append((entry.id, parent))
            elif parent != entry.id:
                usable.append(parent)
        found.append(tuple(usable))
    _report(unknown, {entry.id: entry.parents for entry in given}, table)
    return found


def _report(
    unknown: list[tuple[str, str]], parents: dict[str, tuple[str, ...]], table: LabelTable | None
) -> None:
    if unknown:
        label, parent = unknown[0]
        logger.warning(
            "parents that the label table does not have are skipped: %d, such as %r, the parent "
            "of %r; add a row for each to the table to use them",
            len(unknown),
            parent,
            label,
        )
    given = parents if table is None else dict(zip(table.ids, table.parents, strict=True))
    cycles = find_cycles(given)
    if cycles:
        first = cycles[0]
        logger.warning(
            "cycles in the parents of the label table: %d, such as %s; only direct parents are "
            "used, so scopes are not affected",
            len(cycles),
            " → ".join([*first, first[0]]),
        )
