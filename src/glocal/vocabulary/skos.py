"""SKOS vocabularies as label tables: Turtle, RDF/XML, JSON-LD, N-Triples and their relatives.

- The file is streamed, triple by triple; only what becomes part of the table is kept. A line number
  goes with every syntax error. Nothing is fetched: a JSON-LD context must be in the file.
- A concept is what is a `skos:Concept` or has a preferred label, and has an address. Its id is that
  address. Blank nodes are no concepts, but labels and notes may be told through one (SKOS-XL,
  `rdf:value`).
- Parents are `skos:broader`, and `skos:narrower` the other way round, within the concepts taken.
  Cycles are kept, as `LabelTable.problems` lists them.
- The result is cached as Parquet, by the file's content and the choice of concepts.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glocal.arrays import Bools
from glocal.data.cache import cached
from glocal.data.formats.source import Source
from glocal.errors import ConfigError, require
from glocal.progress import Progress
from glocal.vocabulary.concept_choice import ConceptChoice
from glocal.vocabulary.label_table import SYNTAXES, LabelTable

FORMAT_VERSION = 1
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_XL = "http://www.w3.org/2008/05/skos-xl#"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_PREF, _ALT, _NOTE, _NOTATION, _LITERAL = "pref", "alt", "note", "notation", "literal"
_BROADER, _NARROWER, _SCHEME, _TOP, _TYPE = "broader", "narrower", "scheme", "top", "type"
_DEPRECATED = "deprecated"
_MEANINGS = {
    f"{_SKOS}prefLabel": _PREF,
    f"{_XL}prefLabel": _PREF,
    f"{_SKOS}altLabel": _ALT,
    f"{_XL}altLabel": _ALT,
    f"{_SKOS}hiddenLabel": _ALT,
    f"{_SKOS}scopeNote": _NOTE,
    f"{_SKOS}definition": _NOTE,
    f"{_SKOS}notation": _NOTATION,
    f"{_SKOS}broader": _BROADER,
    f"{_SKOS}narrower": _NARROWER,
    f"{_SKOS}inScheme": _SCHEME,
    f"{_SKOS}topConceptOf": _SCHEME,
    f"{_SKOS}hasTopConcept": _TOP,
    f"{_RDF}type": _TYPE,
    f"{_XL}literalForm": _LITERAL,
    f"{_RDF}value": _LITERAL,
    "http://www.w3.org/2002/07/owl#deprecated": _DEPRECATED,
}
# Types of resources that have a preferred label and are no concepts.
_NO_CONCEPTS = [f"{_SKOS}ConceptScheme", f"{_SKOS}Collection", f"{_SKOS}OrderedCollection"]
_NO_CONCEPTS.append(f"{_XL}Label")
_REPORT_EVERY = 100_000
_BLOCK = 10_000  # concepts described at a time
# The columns of a cached table; another one has the positions of the parents.
_DESCRIBED = pa.schema(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("alt_names", pa.list_(pa.string())),
        ("notation", pa.string()),
    ]
)


def read_skos(
    source: Source, choice: ConceptChoice | None = None, *, progress: Progress | None = None
) -> LabelTable:
    """Read a SKOS vocabulary, from the cache if it was read before.

    Args:
        source: The file.
        choice: Which concepts to take, and in which languages.
        progress: Receives how many triples are read.

    Raises:
        DataError: The file is not valid in the syntax its name tells, or has no concept.
        MissingExtraError: The parser is not installed.
    """
    choice = choice or ConceptChoice()
    key = [FORMAT_VERSION, source.plain_name.rpartition(".")[2], _digest(source), choice.key()]

    def write(folder: Path) -> None:
        pq.write_table(_parse(source, choice, progress), folder / "labels.parquet")

    def read(folder: Path) -> LabelTable:
        return _table(pq.read_table(folder / "labels.parquet", partitioning=None), source.name)

    return cached("vocabularies", key, write=write, read=read, about=source.name)


def _digest(source: Source) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with source.open() as file, source.failures():
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _parse(source: Source, choice: ConceptChoice, progress: Progress | None) -> pa.Table:
    concepts = _Concepts(choice)
    for done, triple in enumerate(_triples(source), 1):
        concepts.add(triple)
        if progress is not None and done % _REPORT_EVERY == 0:
            progress(done, None)
    table = concepts.table()
    if not len(table):
        if concepts.found:
            raise ConfigError(
                f"{source.name}: none of the {concepts.found:,} concepts passes the filters; "
                "loosen them"
            )
        raise source.error(
            "no concepts in the file; expected resources with skos:prefLabel or of the type "
            "skos:Concept"
        )
    return table


def _triples(source: Source) -> Iterator[Any]:
    """Yield the triples of a file, whose ending tells the syntax."""
    oxigraph: Any = require("pyoxigraph", extra="skos", purpose="SKOS vocabularies")
    syntax = getattr(oxigraph.RdfFormat, SYNTAXES[Path(source.plain_name).suffix])
    with source.open() as file, source.failures():
        try:
            yield from oxigraph.parse(file, format=syntax, lenient=True)
        except SyntaxError as error:
            problem = str(error.msg).rpartition(": ")[2] if error.lineno else str(error.msg)
            if "LoadDocumentCallback" in problem:
                problem = "its @context is a web address; put the context itself into the file"
            raise source.error(
                f"not valid {Path(source.plain_name).suffix[1:]} ({problem}); fix the file, or "
                "export it again",
                error.lineno,
            ) from error


class _Texts:
    """Texts of concepts and the ranks of their languages, in columns: smaller than objects."""

    def __init__(self) -> None:
        self.owners, self.ranks, self.texts = array("i"), array("h"), list[str]()

    def add(self, owner: int, rank: int, text: str) -> None:
        self.owners.append(owner)
        self.ranks.append(rank)
        self.texts.append(text)

    def of_each(self, n_concepts: int) -> Iterator[list[tuple[int, str]]]:
        """Yield the (language rank, text) pairs of each concept, most wanted language first."""
        owners, ranks, texts = np.array(self.owners), np.array(self.ranks), self.texts
        order = np.lexsort((ranks, owners))
        bounds = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=n_concepts))])
        for first in range(0, n_concepts, _BLOCK):
            ends = bounds[first : first + _BLOCK + 1].tolist()
            places = order[ends[0] : ends[-1]].tolist()
            pairs = [
                (rank, texts[p]) for rank, p in zip(ranks[places].tolist(), places, strict=True)
            ]
            for start, stop in itertools.pairwise(ends):
                yield pairs[start - ends[0] : stop - ends[0]]


class _Links:
    """Pairs of resources."""

    def __init__(self) -> None:
        self.sources, self.targets = array("i"), array("i")

    def add(self, source: int, target: int) -> None:
        self.sources.append(source)
        self.targets.append(target)

    def leads_to(self, targets: Iterable[int], n_resources: int) -> Bools:
        """Return whether each resource links to one of the targets."""
        found = np.zeros(n_resources, dtype=bool)
        sources, ends = np.array(self.sources), np.array(self.targets)
        found[sources[np.isin(ends, list(targets))] if len(ends) else []] = True
        return found

    def among(self, taken: Bools) -> pa.Array:
        """Return the targets of each resource that is taken, numbered among the taken ones."""
        place = np.cumsum(taken) - 1
        ends = np.array(self.sources, dtype=np.int64), np.array(self.targets, dtype=np.int64)
        inside = taken[ends[0]] & taken[ends[1]]
        pairs = np.unique(place[ends[0][inside]] * len(taken) + place[ends[1][inside]])
        sources, targets = np.divmod(pairs, len(taken))
        bounds = np.searchsorted(sources, np.arange(taken.sum() + 1)).astype(np.int32)
        return pa.ListArray.from_arrays(bounds, targets.astype(np.int32))


class _Concepts:
    """Collects what triples say about concepts."""

    def __init__(self, choice: ConceptChoice) -> None:
        self.choice = choice
        self.found = 0  # concepts before the filters
        self._index: dict[str, int] = {}
        self._texts = {kind: _Texts() for kind in (_PREF, _ALT, _NOTE, _NOTATION)}
        self._unwanted = _Texts()  # alternative names in languages that were not asked for
        self._links = {kind: _Links() for kind in (_BROADER, _SCHEME, _TYPE)}
        self._deprecated: set[int] = set()
        self._other: dict[int, tuple[str, str]] = {}  # concept → language and name not asked for
        self._told: dict[int, list[Any]] = {}  # resource → literals it stands for
        self._through: list[tuple[str, int, int]] = []  # kind, concept, resource with the literal
        self._ranks: dict[str | None, int] = {}  # language → rank; unwanted ones have their own

    def add(self, triple: Any) -> None:
        """Take note of a triple that says something about a concept."""
        kind = _MEANINGS.get(triple.predicate.value)
        if kind is None:
            return
        subject, target = self._place(triple.subject), triple.object
        is_literal = hasattr(target, "datatype")
        if kind == _LITERAL:
            if is_literal:
                self._told.setdefault(subject, []).append(target)
        elif kind == _DEPRECATED:
            if getattr(target, "value", "") in ("true", "1"):
                self._deprecated.add(subject)
        elif kind in self._texts:
            if is_literal:
                self._add_text(kind, subject, target)
            else:
                self._through.append((kind, subject, self._place(target)))
        elif not is_literal:
            self._add_link(kind, subject, self._place(target))

    def _place(self, node: Any) -> int:
        # The name of a blank node never looks like an address, so the two cannot be confused.
        return self._index.setdefault(node.value, len(self._index))

    def _add_link(self, kind: str, subject: int, target: int) -> None:
        if kind == _NARROWER:
            self._links[_BROADER].add(target, subject)
        elif kind == _TOP:
            self._links[_SCHEME].add(target, subject)
        else:
            self._links[kind].add(subject, target)

    def _add_text(self, kind: str, subject: int, literal: Any) -> None:
        language, text = literal.language, " ".join(literal.value.split())
        if not text:
            return
        if kind == _NOTATION:
            self._texts[kind].add(subject, 0, text)
            return
        rank = self._rank(language)
        if rank <= len(self.choice.languages):
            self._texts[kind].add(subject, rank, text)
        elif kind == _PREF:
            found = (language, text)
            self._other[subject] = min(self._other.get(subject, found), found)
        elif kind == _ALT:
            self._unwanted.add(subject, rank, text)

    def _rank(self, language: str | None) -> int:
        rank = self._ranks.get(language)
        if rank is None:
            rank = self.choice.language_rank(language)
            rank += len(self._ranks) * (rank > len(self.choice.languages))
            self._ranks[language] = rank
        return rank

    def table(self) -> pa.Table:
        """Return the concepts that pass the filters."""
        for kind, subject, target in self._through:
            for literal in self._told.get(target, ()):
                self._add_text(kind, subject, literal)
        ids = list(self._index)
        taken = self._taken(ids)
        table = pa.Table.from_batches(self._described(ids, taken), _DESCRIBED)
        parents = self._links[_BROADER].among(taken)
        return table.append_column(pa.field("parents", parents.type), parents)

    def _taken(self, ids: list[str]) -> Bools:
        choice, n = self.choice, len(ids)

        def linked(kind: str, names: Sequence[str]) -> Bools:
            return self._links[kind].leads_to([self._index.get(name, -1) for name in names], n)

        named = np.zeros(n, dtype=bool)
        named[[*self._other]] = True
        named[np.array(self._texts[_PREF].owners, dtype=np.int64)] = True
        taken = linked(_TYPE, [f"{_SKOS}Concept"]) | (named & ~linked(_TYPE, _NO_CONCEPTS))
        taken &= np.array([":" in id_ for id_ in ids], dtype=bool)  # not a blank node
        self.found = int(taken.sum())
        for kind, wanted, unwanted in (
            (_TYPE, choice.types, choice.exclude_types),
            (_SCHEME, choice.schemes, choice.exclude_schemes),
        ):
            if wanted:
                taken &= linked(kind, wanted)
            taken &= ~linked(kind, unwanted)
        if not choice.deprecated:
            taken[[*self._deprecated]] = False
        if choice.has_places:
            above = self._links[_BROADER].among(np.ones(n, dtype=bool))
            taken &= choice.by_place(ids, self._index, lambda place: above[place].as_py())
        return taken

    def _described(self, ids: list[str], taken: Bools) -> Iterator[pa.RecordBatch]:
        n = len(ids)
        texts = (self._texts[kind].of_each(n) for kind in (_PREF, _ALT, _NOTE, _NOTATION))
        rows = zip(taken.tolist(), ids, *texts, self._unwanted.of_each(n), strict=True)
        kept: list[tuple[Any, ...]] = []
        for place, (is_taken, id_, names, others, notes, codes, unwanted) in enumerate(rows):
            if not is_taken:
                continue
            language, name = self._other.get(place, (None, id_))
            if names:
                name = names[0][1]
            elif language is not None:  # its other names in the language it is named in
                others += [pair for pair in unwanted if pair[0] == self._ranks[language]]
            alternatives = dict.fromkeys(text for _, text in (*names, *others))
            alternatives.pop(name, None)
            note = " ".join(text for rank, text in notes if rank == notes[0][0])
            kept.append((id_, name, note, tuple(alternatives), codes[0][1] if codes else ""))
            if len(kept) == _BLOCK:
                yield _batch(kept)
                kept = []
        if kept:
            yield _batch(kept)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), _DESCRIBED.types, strict=True)
    arrays = [pa.array(column, kind) for column, kind in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_DESCRIBED)


def _table(table: pa.Table, source: str) -> LabelTable:
    ids = table.column("id").to_pylist()
    # Millions of tuples, none in a cycle: looking for cycles time and again would take longer.
    gc.disable()
    try:
        return LabelTable(
            ids,
            table.column("name").to_pylist(),
            table.column("description").to_pylist(),
            [tuple(ids[p] for p in above) for above in _lists(table.column("parents"))],
            list(_lists(table.column("alt_names"))),
            source,
            table.column("notation").to_pylist(),
        )
    finally:
        gc.enable()


def _lists(column: pa.ChunkedArray) -> Iterator[tuple[Any, ...]]:
    """Yield the lists of a column; several times faster than converting them one by one."""
    for chunk in column.chunks:
        values = chunk.flatten().to_pylist()
        ends = np.cumsum(chunk.value_lengths().to_numpy()).tolist()
        for start, stop in itertools.pairwise([0, *ends]):
            yield tuple(values[start:stop])
