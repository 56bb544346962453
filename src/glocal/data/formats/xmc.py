"""File layouts of the extreme classification benchmarks.

- Text files: `train_texts.txt` or `train_raw_texts.txt`, one text per line, and `train_labels.txt`
  with the labels of each, separated by spaces or commas.
- Sparse files: a first line `documents features labels`, then one line per document with its label
  numbers and features, such as `3,17 4:0.5 9:1`. They contain no texts: `read_sparse` returns their
  matrices, and with a file of texts beside them their labels make a corpus. Matrices with a first
  line of two numbers (`rows columns`) can be read too.
- The JSON files (`trn.json.gz`) are JSON lines; see `rows.py` for their field names.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glocal.data.corpus import Document
from glocal.data.formats.compression import ENDINGS, without_ending
from glocal.data.formats.fields import ReadOptions
from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source

TEXTS_NAME = re.compile(r"(?P<split>.+?)_(?:raw_)?texts?\.txt")
SPARSE_HEADER = re.compile(rb"\s*\d+[ \t]+\d+(?:[ \t]+\d+)?[ \t]*\r?\n")
LABEL_SEPARATOR = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class SparseFile:
    """The matrices of a sparse file.

    Args:
        features: CSR matrix of the features, float32 (documents, features).
        labels: CSR matrix of ones for the labels, float32 (documents, labels); None if the file
            has no labels.
    """

    features: Any
    labels: Any


def labels_file_of(texts: Path) -> Path | None:
    """Return the labels file (`train_labels.txt`) beside a file of texts, or None."""
    match = TEXTS_NAME.fullmatch(without_ending(texts.name))
    return None if match is None else _beside(texts, [f"{match['split']}_labels.txt"])


def is_sparse_header(head: bytes) -> bool:
    """Return whether a file that begins with `head` looks like a sparse file."""
    return SPARSE_HEADER.match(head) is not None


def read_xmc_texts(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream the documents of a file of texts and the file of labels beside it."""
    path = options.labels_path or labels_file_of(source.path)
    if path is None:
        raise source.error(
            "no file of labels beside it (train_labels.txt for train_texts.txt); name it with "
            "labels_path, or read the texts alone with format='text'"
        )
    labels = Source(path)
    label_lists = (tuple(_split(row)) for _, row in labels.lines(Problems()))
    yield from _paired(source, labels, label_lists, problems)


def read_xmc_sparse(source: Source, options: ReadOptions, problems: Problems) -> Iterator[Document]:
    """Stream the documents of a sparse file, whose texts are in a separate file."""
    path = options.texts_path or _texts_file_of(source.path)
    if path is None:
        raise source.error(
            "the file holds features and label numbers but no texts; name the file of its texts, "
            "one per line, with texts_path"
        )
    lines = source.lines(Problems())
    _sizes(source, next(lines, (1, "")), expected=3)
    label_lists = (tuple(_split(row[: _labels_end(row)])) for _, row in lines)
    yield from _paired(Source(path), source, label_lists, problems)


def read_sparse(path: str | Path) -> SparseFile:
    """Read the matrices of a sparse file.

    Args:
        path: The file, possibly gzipped.

    Raises:
        DataError: A line cannot be parsed, a number is out of range or lines are missing.
    """
    source = Source(path)
    lines = source.lines(Problems())
    sizes = _sizes(source, next(lines, (1, "")), expected=None)
    labels, features = _Rows(), _Rows()
    for line, row in lines:
        end = _labels_end(row) if len(sizes) == 3 else 0
        try:
            label_ids = [int(part) for part in _split(row[:end])]
            labels.add(label_ids, [1.0] * len(label_ids))
            features.add(*_parse_pairs(row[end:]))
            labels.check(sizes[-1])
            features.check(sizes[1])
        except ValueError as error:
            raise source.error(
                f"malformed line ({error}); expected labels and features as in '3,17 4:0.5 9:1'",
                line,
            ) from error
    n_rows = len(features)
    if n_rows != sizes[0]:
        raise source.error(
            f"the first line says {sizes[0]} documents, the file has {n_rows}; it may be truncated"
        )
    label_matrix = labels.matrix(sizes[2]) if len(sizes) == 3 else None
    return SparseFile(features.matrix(sizes[1]), label_matrix)


class _Rows:
    """Collects the rows of a sparse matrix."""

    def __init__(self) -> None:
        self._offsets, self._columns, self._values = array("q", [0]), array("q"), array("f")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, columns: Iterable[int], values: Iterable[float]) -> None:
        self._columns.extend(columns)
        self._values.extend(values)
        self._offsets.append(len(self._columns))

    def check(self, n_columns: int) -> None:
        """Raise ValueError if the row added last has a column outside of `n_columns`."""
        for column in self._columns[self._offsets[-2] :]:
            if not 0 <= column < n_columns:
                raise ValueError(f"number {column} is not in 0 to {n_columns - 1}")

    def matrix(self, n_columns: int) -> Any:
        from scipy.sparse import csr_matrix

        parts = (np.array(self._values), np.array(self._columns), np.array(self._offsets))
        matrix = csr_matrix(parts, shape=(len(self), n_columns))
        matrix.sort_indices()
        return matrix


def _paired(
    texts: Source, labels: Source, label_lists: Iterator[tuple[str, ...]], problems: Problems
) -> Iterator[Document]:
    """Yield documents from lines of texts and equally many lists of labels."""
    pairs = itertools.zip_longest(texts.raw_lines(), label_lists)
    for row, (text_line, names) in enumerate(pairs, 1):
        if text_line is None or names is None:
            short, long = (texts, labels) if text_line is None else (labels, texts)
            raise short.error(
                f"ends after {row - 1} documents, but {long.name} goes on; the two files must "
                "match line by line"
            )
        line, raw = text_line
        with problems:
            yield Document("", texts.decode(line, raw), names, line)


def _split(cell: str) -> list[str]:
    return list(dict.fromkeys(part for part in LABEL_SEPARATOR.split(cell) if part))


def _labels_end(row: str) -> int:
    """Return the end of the labels in a line of a sparse file; without labels it starts blank."""
    first_space = row.find(" ") if " " in row else len(row)
    return 0 if ":" in row[:first_space] else first_space


def _parse_pairs(cell: str) -> tuple[list[int], list[float]]:
    columns, values = [], []
    for pair in cell.split():
        column, colon, value = pair.partition(":")
        if not colon:
            raise ValueError(f"{pair!r} is not a pair of number and value")
        columns.append(int(column))
        values.append(float(value))
    return columns, values


def _sizes(source: Source, first: tuple[int, str], *, expected: int | None) -> list[int]:
    parts = first[1].split()
    fits = len(parts) in ((2, 3) if expected is None else (expected,))
    if not fits or not all(part.isdigit() for part in parts):
        raise source.error(
            f"the first line is {first[1]!r:.60}, expected the numbers of documents, features and "
            "labels",
            1,
        )
    return [int(part) for part in parts]


def _texts_file_of(path: Path) -> Path | None:
    stem = without_ending(path.name).removesuffix(".txt")
    return _beside(path, [f"{stem}_{kind}.txt" for kind in ("raw_texts", "texts")])


def _beside(path: Path, names: Iterable[str]) -> Path | None:
    """Return the first file of these names beside another, compressed or not."""
    files = (path.with_name(name + ending) for name in names for ending in ("", *ENDINGS))
    return next((file for file in files if file.exists()), None)
