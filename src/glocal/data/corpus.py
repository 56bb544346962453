"""A corpus: documents with ids, texts and label ids in an Arrow table.

- The table is in memory or memory-mapped from a file; nothing is copied until it is needed, and
  texts are returned in slices.
- The columns are `id: string`, `text: large_string`, `labels: list<string>`; the labels of a
  document are distinct.
- `CorpusBuilder` collects documents and moves them to a memory-mapped file once they exceed a
  limit, so that reading a large file needs bounded memory.
- `fingerprint()` depends on the texts alone, not on how the table is chunked.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glocal.data.cache import cache_dir, cache_error
from glocal.errors import DataError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("labels", pa.list_(pa.string()), nullable=False),
    ]
)

BATCH_DOCUMENTS = 8192
BATCH_CHARACTERS = 16_000_000
SPILL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Args:
        id: Its id, unique in its corpus.
        text: Its text.
        labels: Ids of its labels; may be empty.
        line: Line or row of its file, counted from 1; 0 if unknown.
    """

    id: str
    text: str
    labels: tuple[str, ...] = ()
    line: int = 0


class Corpus:
    """Documents in an Arrow table.

    Args:
        table: A table with the columns `id`, `text` and `labels`.
        source: The file or name it was read from, for messages.
        skipped: Problems of the rows that were skipped when it was read.

    Attributes:
        detected: For each file it was read from, the format, encoding, fields and separators that
            were used.

    Example:
        >>> from glocal import Corpus
        >>> corpus = Corpus.from_texts(["a red apple"], [["fruit"]])
        >>> corpus.texts(), corpus.labels()
        (['a red apple'], [['fruit']])
    """

    def __init__(
        self, table: pa.Table, *, source: str = "table", skipped: Sequence[str] = ()
    ) -> None:
        self.table = _conform(table, source)
        self.source = source
        self.skipped = list(skipped)
        self.detected: dict[str, dict[str, Any]] = {}
        self._fingerprint: str | None = None

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        labels: Iterable[Iterable[str | int]] | None = None,
        ids: Iterable[str | int] | None = None,
        source: str = "texts",
    ) -> Corpus:
        """Build a corpus from Python objects.

        Args:
            texts: The texts.
            labels: Labels of each text; integers become strings.
            ids: Id of each text; by default its position, from 0.
            source: A name for messages.

        Raises:
            DataError: A text is not a string, a label is blank, lengths differ or an id repeats.
        """
        text_list = list(texts)
        label_lists = [()] * len(text_list) if labels is None else list(labels)
        id_list = [str(i) for i in range(len(text_list))] if ids is None else [str(i) for i in ids]
        if not len(text_list) == len(label_lists) == len(id_list):
            raise DataError(
                f"{len(text_list)} texts but {len(label_lists)} label lists and {len(id_list)} "
                "ids; each text needs both",
                path=source,
            )
        builder, seen = CorpusBuilder(source=source), set[str]()
        rows = zip(text_list, label_lists, id_list, strict=True)
        for line, (text, names, id_) in enumerate(rows, 1):
            try:
                document = Document(id_, _checked_text(text), _checked_labels(names), line)
                if id_ in seen:
                    raise ValueError(f"the id {id_!r} occurs twice; ids must be distinct")
                if problem := unicode_problem(document):
                    raise ValueError(problem)
            except ValueError as error:
                raise DataError(str(error), path=source, line=line) from error
            seen.add(id_)
            builder.add(document)
        return builder.finish()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"Corpus({len(self)} documents from {self.source})"

    @property
    def ids(self) -> list[str]:
        """Ids of all documents, in order."""
        return list(self.table.column("id").to_pylist())

    def texts(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Return the texts of the documents from `start` up to `stop`."""
        return list(self._slice("text", start, stop).to_pylist())

    def iter_texts(self, batch_size: int = 1024) -> Iterator[list[str]]:
        """Yield the texts in order, in lists of `batch_size`, the last one possibly shorter."""
        for start in range(0, len(self), batch_size):
            yield self.texts(start, start + batch_size)

    def labels(self, start: int = 0, stop: int | None = None) -> list[list[str]]:
        """Return the label ids of the documents from `start` up to `stop`."""
        return list(self._slice("labels", start, stop).to_pylist())

    def documents(self) -> Iterator[Document]:
        """Yield the documents in order; `line` is the position in the corpus, from 1."""
        for start in range(0, len(self), 1024):
            rows = self.table.slice(start, 1024).to_pylist()
            for row, values in enumerate(rows, start + 1):
                yield Document(values["id"], values["text"], tuple(values["labels"]), row)

    def take(self, indices: Sequence[int] | np.ndarray[Any, Any]) -> Corpus:
        """Return the documents at `indices`, in that order, as a corpus of its own."""
        positions = np.asarray(indices, dtype=np.int64)
        builder = CorpusBuilder(source=self.source)
        for start in range(0, len(positions), BATCH_DOCUMENTS):
            rows = self.table.take(pa.array(positions[start : start + BATCH_DOCUMENTS]))
            builder.add_table(rows)
        return builder.finish()

    def fingerprint(self) -> str:
        """Return a hash of all texts in order, which identifies the content in caches."""
        if self._fingerprint is None:
            lengths, content = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
            for chunk in self.table.column("text").chunks:
                offsets, data = _string_buffers(chunk)
                lengths.update(np.diff(offsets).tobytes())
                content.update(data)
            both = lengths.digest() + content.digest()
            self._fingerprint = hashlib.blake2b(both, digest_size=16).hexdigest()
        return self._fingerprint

    def _slice(self, column: str, start: int, stop: int | None) -> pa.ChunkedArray:
        first, last, _ = slice(start, stop).indices(len(self))
        return self.table.column(column).slice(first, max(0, last - first))


class CorpusBuilder:
    """Collects documents into a corpus in bounded memory.

    Args:
        source: The file or name they are read from.
        spill_bytes: Size from which documents are moved from memory to a memory-mapped file.
    """

    def __init__(self, *, source: str, spill_bytes: int = SPILL_BYTES) -> None:
        self._source = source
        self._spill_bytes = spill_bytes
        self._columns: tuple[list[str], list[str], list[tuple[str, ...]]] = ([], [], [])
        self._characters = 0
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: _SpillFile | None = None

    def add(self, document: Document) -> None:
        """Add one document."""
        ids, texts, labels = self._columns
        ids.append(document.id)
        texts.append(document.text)
        labels.append(document.labels)
        self._characters += len(document.text)
        if len(ids) >= BATCH_DOCUMENTS or self._characters >= BATCH_CHARACTERS:
            self._flush()

    def add_table(self, table: pa.Table) -> None:
        """Add the documents of a table that has the columns of a corpus."""
        self._flush()
        for batch in table.combine_chunks().to_batches():
            self._keep(batch)

    def finish(self, *, skipped: Sequence[str] = ()) -> Corpus:
        """Return the corpus; the builder must not be used afterwards."""
        self._flush()
        if self._file is None:
            table = pa.Table.from_batches(self._batches, schema=SCHEMA)
            return Corpus(table, source=self._source, skipped=skipped)
        return self._file.open(source=self._source, skipped=skipped)

    def close(self) -> None:
        """Discard the collected documents, and the file they were moved to, if any."""
        self._batches.clear()
        if self._file is not None:
            self._file.discard()

    def _flush(self) -> None:
        if not self._columns[0]:
            return
        arrays = [pa.array(c, f.type) for c, f in zip(self._columns, SCHEMA, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        self._columns, self._characters = ([], [], []), 0
        self._keep(batch)

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._bytes += batch.nbytes
        if self._file is None and self._bytes <= self._spill_bytes:
            self._batches.append(batch)
            return
        if self._file is None:
            self._file = _SpillFile()
        for pending in itertools.chain(self._batches, [batch]):
            self._file.write(pending)
        self._batches.clear()


class _SpillFile:
    """An Arrow file in the cache folder that exists as long as the corpus mapped from it."""

    def __init__(self) -> None:
        folder = cache_dir("corpora")
        try:
            handle, name = tempfile.mkstemp(prefix="corpus-", suffix=".arrow", dir=folder)
            os.close(handle)
        except OSError as error:
            raise cache_error(folder, error) from error
        self._path = Path(name)
        self._sink = pa.OSFile(name, "wb")
        self._writer = pa.ipc.new_file(self._sink, SCHEMA)

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except OSError as error:
            self.discard()
            raise cache_error(self._path.parent, error) from error

    def open(self, *, source: str, skipped: Sequence[str]) -> Corpus:
        try:
            self._writer.close()
            self._sink.close()
        except OSError as error:
            self.discard()
            raise cache_error(self._path.parent, error) from error
        table = pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()
        corpus = Corpus(table, source=source, skipped=skipped)
        # Where a mapped file can be unlinked nothing is left behind, even after a kill; elsewhere
        # the file is deleted with the corpus.
        if not _unlink(self._path):
            weakref.finalize(corpus, _unlink, self._path)
        return corpus

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._sink.close()
        _unlink(self._path)


def unicode_problem(document: Document) -> str | None:
    """Return what in a document cannot be written as UTF-8, or None.

    A Python string can contain a lone surrogate (half of a UTF-16 pair), which is no character.
    """
    parts = (document.text, document.id, *document.labels)
    return next((problem for part in parts if (problem := surrogate_in(part))), None)


def surrogate_in(text: str) -> str | None:
    """Return the place of a lone surrogate in a text, or None."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"{text[max(0, error.start - 20) : error.start + 1]!r} is not valid Unicode "
            f"({error.reason}); remove the lone surrogate"
        )
    return None


def _unlink(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _conform(table: pa.Table, source: str) -> pa.Table:
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise DataError(
            f"a corpus needs the columns {SCHEMA.names}; {missing} missing "
            f"(columns: {table.column_names})",
            path=source,
        )
    table = table.select(SCHEMA.names)
    return table if table.schema.equals(SCHEMA) else table.cast(SCHEMA)


def _string_buffers(chunk: pa.Array) -> tuple[np.ndarray[Any, Any], memoryview]:
    """Return the offsets of a large_string array and the bytes between the first and the last."""
    _, offsets_buffer, data_buffer = chunk.buffers()
    if len(chunk) == 0:
        return np.zeros(1, dtype=np.int64), memoryview(b"")
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)
    offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1]
    data = memoryview(b"") if data_buffer is None else memoryview(data_buffer)
    return offsets, data[offsets[0] : offsets[-1]]


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"a text is a {type(text).__name__}, expected a string: {text!r:.60}")
    return text


def _checked_labels(names: Iterable[str | int]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(
            f"the labels of a text are the string {names!r:.60}; expected a list of label ids, "
            f"such as [{names!r:.30}]"
        )
    labels = tuple(dict.fromkeys(str(name) for name in names))
    if any(not label.strip() for label in labels):
        raise ValueError("a label is blank; remove it or name it")
    return labels
