"""The label table: names, descriptions and parents of labels, given by the user.

- Read from JSON lines, CSV, TSV or Parquet with the fields `id`, `name`, and if known
  `description`, `parents`, `alt_names` (or `alt`) and `notation`; from SKOS in any RDF syntax
  (`skos.py`); from Annif's TSV and CSV vocabularies (`annif_vocabulary.py`); from the XMC
  repository's `lbl.json.gz`, whose labels are numbered by their position from 0; or from a built-in
  set by its name.
- A bad row raises an error with its file and line. Problems of the hierarchy (an unknown parent, a
  cycle) are listed by `problems()`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from glocal.data.builtin import builtin_label_rows
from glocal.data.formats.detect import table_rows
from glocal.data.formats.rows import Problems, split_labels
from glocal.data.formats.source import Source
from glocal.data.writers import write_rows
from glocal.errors import ConfigError, DataError
from glocal.progress import Progress
from glocal.vocabulary.annif_vocabulary import annif_tsv_rows, from_annif_row, is_annif_tsv
from glocal.vocabulary.concept_choice import ConceptChoice
from glocal.vocabulary.label_space import DESCRIBED

# Endings of the names of SKOS vocabularies, and the parser's names of their syntaxes.
SYNTAXES = {
    ".ttl": "TURTLE",
    ".nt": "N_TRIPLES",
    ".n3": "N3",
    ".nq": "N_QUADS",
    ".trig": "TRIG",
    ".rdf": "RDF_XML",
    ".owl": "RDF_XML",
    ".xml": "RDF_XML",
    ".jsonld": "JSON_LD",
}
COLUMNS = ("id", "name", "notation", "description", "parents", "alt_names", "uid", "title", "uri")
EXAMPLE = '{"id": "a", "name": "…", "parents": ["b"]}'


@dataclass(frozen=True, slots=True)
class LabelEntry:
    """One row of a label table.

    Args:
        id: Id of the label.
        name: Its name; the id if it has none.
        description: A longer text about it, or an empty string.
        parents: Ids of the labels right above it.
        alt_names: Its other names.
        notation: Its code in a classification, or an empty string.
    """

    id: str
    name: str
    description: str = ""
    parents: tuple[str, ...] = ()
    alt_names: tuple[str, ...] = ()
    notation: str = ""


@dataclass
class LabelTable:
    """Labels with names, descriptions and parents, in the order of their file.

    Args:
        ids: Ids of the labels, each once.
        names: Their names.
        descriptions: Their descriptions, empty strings for none.
        parents: For each label, the ids of the labels right above it.
        alt_names: For each label, its other names.
        notations: Their codes in a classification, empty strings for none.
        source: The file or name the table was read from, for messages.

    Example:
        >>> from glocal import LabelTable
        >>> LabelTable(["c1"], ["Fruit"], descriptions=["What grows on trees."]).names
        ['Fruit']
    """

    ids: list[str]
    names: list[str]
    descriptions: list[str] = field(default_factory=list)
    parents: list[tuple[str, ...]] = field(default_factory=list)
    alt_names: list[tuple[str, ...]] = field(default_factory=list)
    source: str = "table"
    notations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        n_labels = len(self.ids)
        self.descriptions = self.descriptions or [""] * n_labels
        self.parents = self.parents or [()] * n_labels
        self.alt_names = self.alt_names or [()] * n_labels
        self.notations = self.notations or [""] * n_labels
        columns = (self.names, self.descriptions, self.parents, self.alt_names, self.notations)
        if any(len(column) != n_labels for column in columns):
            lengths = [len(column) for column in columns]
            raise DataError(
                f"{n_labels} label ids but {lengths} names, descriptions, parents, "
                "alternative names and notations; give one of each per label",
                path=self.source,
            )
        if len(self.index) != n_labels:
            raise DataError("a label occurs twice in the label table", path=self.source)

    @classmethod
    def from_entries(cls, entries: Sequence[LabelEntry], *, source: str = "table") -> LabelTable:
        """Build a table from its entries."""
        columns: dict[str, Any] = {
            column: [getattr(entry, name) for entry in entries]
            for column, name in DESCRIBED.items()
        }
        return cls(**columns, source=source)

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], *, source: str = "table") -> LabelTable:
        """Build a table from rows with `id`, `name` and `parents`."""
        entries = [LabelEntry(r["id"], r["name"], parents=tuple(r["parents"])) for r in rows]
        return cls.from_entries(entries, source=source)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id_: object) -> bool:
        return id_ in self.index

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each label."""
        return {id_: position for position, id_ in enumerate(self.ids)}

    def get(self, id_: str) -> LabelEntry | None:
        """Return the row of a label, or None if the table does not have it."""
        position = self.index.get(id_)
        if position is None:
            return None
        return LabelEntry(*(getattr(self, column)[position] for column in DESCRIBED))

    def problems(self) -> list[str]:
        """Return the problems of the hierarchy: parents that are not in the table, and cycles."""
        found = [
            f"{self.source}: the parent {parent!r} of label {id_!r} is not in the table"
            for id_, above in zip(self.ids, self.parents, strict=True)
            for parent in above
            if parent not in self.index
        ]
        cycles = find_cycles(dict(zip(self.ids, self.parents, strict=True)))
        found += [
            f"{self.source}: the parents form a cycle: {' → '.join([*cycle, cycle[0]])}"
            for cycle in cycles
        ]
        return found


def find_cycles(parents: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Find cycles in a hierarchy, one for every place where a walk upwards meets itself.

    Args:
        parents: For each label, the labels right above it; labels that are only parents have none.

    Returns:
        Each cycle as the labels along it, from child to parent.
    """
    finished: set[str] = set()
    cycles: list[list[str]] = []
    for start in parents:
        if start in finished:
            continue
        path, position = [start], {start: 0}
        pending = [iter(parents[start])]
        while pending:
            above = next(pending[-1], None)
            if above is None:
                pending.pop()
                done = path.pop()
                del position[done]
                finished.add(done)
            elif above in position:
                cycles.append(path[position[above] :])
            elif above not in finished:
                position[above] = len(path)
                path.append(above)
                pending.append(iter(parents.get(above, ())))
    return cycles


def read_label_table(
    path: str | Path, *, choice: ConceptChoice | None = None, progress: Progress | None = None
) -> LabelTable:
    """Read a label table.

    Args:
        path: A JSONL, CSV, TSV or Parquet file, a SKOS vocabulary (Turtle, RDF/XML, JSON-LD,
            N-Triples), any of them possibly gzipped, or the name of a built-in set.
        choice: Which concepts become labels, and in which languages they are named.
        progress: Receives how many triples of a SKOS vocabulary are read.

    Raises:
        DataError: The file or one of its rows cannot be used.
        ConfigError: No label passes the filters.

    Example:
        >>> from glocal import read_label_table
        >>> read_label_table("labels.jsonl").names
        ['Fruit']
    """
    choice = choice or ConceptChoice()
    if (rows := builtin_label_rows(str(path))) is not None:
        return _chosen(LabelTable.from_rows(rows, source=str(path)), choice)
    source = Source(path)
    if source.is_dir:
        raise source.error("is a folder; expected a file of labels such as labels.jsonl")
    if not source.head():
        raise source.error("the file is empty; expected one label per line")
    if Path(source.plain_name).suffix in SYNTAXES:
        from glocal.vocabulary.skos import read_skos

        return read_skos(source, choice, progress=progress)
    entries: list[LabelEntry] = []
    lines: dict[str, int] = {}
    for position, (line, row) in enumerate(_rows(source, choice)):
        entry = _entry(row, position, source, line)
        if entry.id in lines:
            raise source.error(
                f"the label {entry.id!r} is already in line {lines[entry.id]}; keep one", line
            )
        lines[entry.id] = line
        entries.append(entry)
    if not entries:
        raise source.error("no labels in the file; expected at least one row")
    return _chosen(LabelTable.from_entries(entries, source=source.name), choice)


def write_label_table(table: LabelTable, path: str | Path) -> None:
    """Write a label table; a failure leaves an existing file unchanged.

    Args:
        table: The labels.
        path: A file ending in `.jsonl`, `.jsonl.gz` or `.parquet`.

    Raises:
        ConfigError: The file has another ending.
    """
    columns = {name: getattr(table, column) for column, name in DESCRIBED.items()}
    write_rows(path, table=lambda: pa.table(columns), lines=_lines(columns))


def _lines(columns: Mapping[str, Sequence[Any]]) -> Iterator[bytes]:
    """Yield one JSON object for each label, without empty fields."""
    for values in zip(*columns.values(), strict=True):
        row = {name: value for name, value in zip(columns, values, strict=True) if value}
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _chosen(table: LabelTable, choice: ConceptChoice) -> LabelTable:
    """Return the labels of a table that pass the filters."""
    if choice.skos_only:
        raise ConfigError(
            f"{table.source}: {', '.join(choice.skos_only)} can only be chosen in a SKOS "
            "vocabulary; choose by branches or ids"
        )
    if not choice.has_places:
        return table
    above = [[table.index[p] for p in ids if p in table.index] for ids in table.parents]
    taken = choice.by_place(table.ids, table.index, above.__getitem__)
    both = zip(table.ids, taken.tolist(), strict=True)
    entries = [entry for id_, kept in both if kept and (entry := table.get(id_))]
    if not entries:
        raise ConfigError(
            f"{table.source}: none of the {len(table):,} labels passes the filters; loosen them"
        )
    return LabelTable.from_entries(entries, source=table.source)


def _rows(source: Source, choice: ConceptChoice) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if source.plain_name.endswith(".tsv") and is_annif_tsv(source.text_head()):
        return annif_tsv_rows(source)
    rows = table_rows(source, Problems(), COLUMNS, example=EXAMPLE)
    lower = ((line, {str(name).lower(): row[name] for name in row}) for line, row in rows)
    return ((line, from_annif_row(row, choice)) for line, row in lower)


def _entry(row: Mapping[str, Any], position: int, source: Source, line: int) -> LabelEntry:
    # The XMC repository names a label by its title and refers to it by its position.
    numbered = row.get("id") is None and "uid" in row and "title" in row
    id_ = position if numbered else row.get("id")
    name = row.get("title") if numbered else row.get("name")
    if isinstance(id_, bool) or not isinstance(id_, str | int) or not str(id_).strip():
        raise source.error(f"the label has no usable id ({id_!r}); expected {EXAMPLE}", line)
    texts = {"name": name, "description": row.get("description"), "notation": row.get("notation")}
    for field_name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise source.error(f"the {field_name} is {value!r:.60}, expected a string", line)
    return LabelEntry(
        str(id_),
        name or str(id_),
        row.get("description") or "",
        _names(row, "parents", source, line),
        _names(row, "alt" if row.get("alt_names") is None else "alt_names", source, line),
        row.get("notation") or "",
    )


def _names(row: Mapping[str, Any], name: str, source: Source, line: int) -> tuple[str, ...]:
    value = row.get(name)
    if value is None:
        return ()
    try:
        items = split_labels(value, ";") if isinstance(value, str) else list(value)
    except (TypeError, ValueError) as error:
        raise source.error(f"{name} is {value!r:.60}, expected a list", line) from error
    if any(isinstance(item, bool) or not isinstance(item, str | int) for item in items):
        raise source.error(f"{name} is {value!r:.60}, expected a list of strings", line)
    return tuple(dict.fromkeys(str(item) for item in items))
