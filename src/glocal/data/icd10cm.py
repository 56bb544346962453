"""The built-in set `icd10cm`: diagnoses and their codes in the US ICD-10-CM classification.

- Texts are the descriptions of codes and their inclusion terms (other wordings of the diagnosis,
  and notes of what a code includes). Labels are the code and everything above it: subcategories,
  category, block and chapter. With `level="category"` labels end at the three-character
  category.
- All descriptions are training texts. A tenth of the inclusion terms is held out for test and a
  tenth for dev, among those whose wording occurs only once (case and digits aside), so that the
  model has not seen it.
- Labels are those with at least two training texts.
- The data comes with the package `simple-icd-10-cm` (extra `demo`). Its XML file is read directly,
  since importing the package itself takes seconds, and the result is kept in the cache folder.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glocal.data.builtin import SPLITS, BuiltinData
from glocal.data.cache import cached
from glocal.data.corpus import Corpus, CorpusBuilder, Document
from glocal.data.duplicates import near_duplicate_key
from glocal.data.writers import write_corpus
from glocal.errors import DataError, require

Level = Literal["category", "full"]

PACKAGE, DISTRIBUTION = "simple_icd_10_cm", "simple-icd-10-cm"
FORMAT_VERSION = 1
HELD_OUT = 0.1
MIN_TRAINING_TEXTS = 2
# Chapter, block and three-character category; subcategories lie below.
CATEGORY_DEPTH = 3
CODE_RANGE = re.compile(r"\s*\([A-Z0-9]+(?:-[A-Z0-9]+)?\)$")


@dataclass(frozen=True, slots=True)
class _Node:
    """A chapter, block or code: its id, description, inclusion terms and the ids down to it."""

    id: str
    name: str
    terms: tuple[str, ...]
    path: tuple[str, ...]
    is_code: bool


def load_icd10cm(*, level: Level = "category", seed: int = 0) -> BuiltinData:
    """Load the set, building it on first use.

    Args:
        level: `category` for labels down to the three-character category, `full` for all.
        seed: Selects the inclusion terms that are held out.

    Raises:
        MissingExtraError: The package that carries the data is not installed.
        DataError: Its data file is not there or cannot be read.
    """
    package = _package_folder()
    version = importlib.metadata.version(DISTRIBUTION)
    name = "icd10cm" if level == "category" else "icd10cm-full"

    def build() -> BuiltinData:
        return _build(list(_nodes(package)), level=level, seed=seed, name=name)

    key = ["icd10cm", level, version, seed, FORMAT_VERSION]
    try:
        return cached(
            "builtin", key, write=lambda f: _write(build(), f), read=lambda e: _read(e, name)
        )
    except DataError:  # the cache cannot be written to, or the source cannot be read
        return build()


def _package_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        require(PACKAGE, extra="demo", purpose="the built-in data set icd10cm")
        raise DataError(f"the package {DISTRIBUTION} has no folder of its own; install it again")
    return Path(spec.submodule_search_locations[0])


def _nodes(package: Path) -> Iterator[_Node]:
    """Yield the nodes of the classification, each after the one above it."""
    files = sorted(package.glob("data/*tabular*.xml"))
    if not files:
        raise DataError(
            "no tabular list of ICD-10-CM in the package; install it again: "
            f"pip uninstall {DISTRIBUTION}, then pip install {DISTRIBUTION}",
            path=package,
        )
    try:
        root = ElementTree.parse(files[-1]).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise DataError(
            f"cannot be read ({error}); install the package again", path=files[-1]
        ) from error
    for chapter in root.iter("chapter"):
        yield from _walk(chapter, ())


def _walk(element: ElementTree.Element, above: tuple[str, ...]) -> Iterator[_Node]:
    id_ = element.get("id") or element.findtext("name") or ""
    notes = [*element.findall("inclusionTerm/note"), *element.findall("includes/note")]
    yield _Node(
        id_,
        (element.findtext("desc") or "").strip(),
        tuple(note.text.strip() for note in notes if note.text),
        (*above, id_),
        element.tag == "diag",
    )
    for child in element:
        if child.tag in ("section", "diag"):
            yield from _walk(child, (*above, id_))


def _build(nodes: list[_Node], *, level: Level, seed: int, name: str) -> BuiltinData:
    """Assign texts to splits and labels to texts."""
    depth = CATEGORY_DEPTH if level == "category" else None
    codes = [node for node in nodes if node.is_code]
    # A block of one category has its id; it is one label, and so occurs once in a path.
    paths = {node.id: tuple(dict.fromkeys(node.path[:depth])) for node in codes}
    descriptions = [(node.id, node.name, paths[node.id]) for node in codes]
    terms = [
        (f"{node.id}#{number}", term, paths[node.id])
        for node in codes
        for number, term in enumerate(node.terms, 1)
    ]
    dev, test = _held_out([text for _, text, _ in descriptions], [t for _, t, _ in terms], seed)
    train = descriptions + [t for i, t in enumerate(terms) if i not in dev and i not in test]
    counts = Counter(label for _, _, path in train for label in path)
    kept = {label for label, count in counts.items() if count >= MIN_TRAINING_TEXTS}
    return BuiltinData(
        _corpus(train, kept, f"{name}:train"),
        _corpus([terms[i] for i in sorted(dev)], kept, f"{name}:dev"),
        _corpus([terms[i] for i in sorted(test)], kept, f"{name}:test"),
        _label_rows(nodes, kept),
    )


def _held_out(descriptions: list[str], terms: list[str], seed: int) -> tuple[set[int], set[int]]:
    """Return the positions of the terms for dev and test, none a near-duplicate of any text."""
    occurrences = Counter(map(near_duplicate_key, [*descriptions, *terms]))
    unique = [i for i, term in enumerate(terms) if occurrences[near_duplicate_key(term)] == 1]
    chosen = np.random.default_rng(seed).permutation(unique).tolist()
    size = round(HELD_OUT * len(terms))
    return set(chosen[:size]), set(chosen[size : 2 * size])


def _corpus(texts: list[tuple[str, str, tuple[str, ...]]], labels: set[str], source: str) -> Corpus:
    builder = CorpusBuilder(source=source)
    for id_, text, path in texts:
        builder.add(Document(id_, text, tuple(label for label in path if label in labels)))
    return builder.finish()


def _label_rows(nodes: list[_Node], labels: set[str]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}  # by id: a block of one category has the category's
    for node in nodes:
        above = [id_ for id_ in node.path if id_ != node.id]
        if node.id in labels:
            name = CODE_RANGE.sub("", node.name)
            rows[node.id] = {"id": node.id, "name": name, "parents": above[-1:]}
    return list(rows.values())


def _write(data: BuiltinData, folder: Path) -> None:
    for split in SPLITS:
        write_corpus(getattr(data, split), folder / f"{split}.parquet")
    pq.write_table(pa.Table.from_pylist(data.label_rows), folder / "labels.parquet")


def _read(folder: Path, name: str) -> BuiltinData:
    splits = {
        split: Corpus(pq.ParquetFile(folder / f"{split}.parquet").read(), source=f"{name}:{split}")
        for split in SPLITS
    }
    rows = pq.ParquetFile(folder / "labels.parquet").read().to_pylist()
    return BuiltinData(**splits, label_rows=rows)
