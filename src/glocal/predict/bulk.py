"""Prediction of any number of texts in bounded memory, in their order, to JSONL or Parquet.

- documents are read, predicted and written in chunks; nothing of an earlier chunk is kept;
- one row for each document, best label first:
  `{"id": …, "labels": [{"id": …, "name": …, "score": …}, …]}`;
- a file appears under its name only when it is complete; stdout is written as it comes.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Protocol

from glocal.data.atomic import atomic_write
from glocal.errors import ConfigError
from glocal.progress import Progress

if TYPE_CHECKING:
    from glocal.data.corpus import Document
    from glocal.ranking.predictions import Predictions
    from glocal.vocabulary.label_space import LabelSpace

__all__ = ["TagRow", "open_writer", "predict_rows", "prediction_rows"]

TagRow = dict[str, Any]
RowSink = Callable[[Iterable[TagRow]], None]

CHUNK = 2048  # documents in memory at a time; enough for length-sorted batches to pay off


class TopKPredictor(Protocol):
    """What bulk prediction needs of a predictor."""

    labels: LabelSpace

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int,
        only: Sequence[str] | None,
        exclude: Sequence[str] | None,
    ) -> Predictions:
        """Return the best labels of each text."""


def predict_rows(
    predictor: TopKPredictor,
    documents: Iterable[Document],
    *,
    k: int = 5,
    threshold: float = 0.0,
    names: bool = True,
    only: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    chunk_size: int = CHUNK,
    progress: Progress | None = None,
) -> Iterator[TagRow]:
    """Tag a stream of documents, in its order.

    Args:
        predictor: A loaded model.
        documents: Read lazily, `chunk_size` at a time.
        k: Labels for each document, at most.
        threshold: Leave out labels with a lower probability.
        names: Give each label's name beside its id.
        only: Label ids to choose from; all by default.
        exclude: Label ids never to give.
        chunk_size: Documents held in memory.
        progress: Called with the documents done and None, as the total is not known.
    """
    stream, done = iter(documents), 0
    while chunk := list(itertools.islice(stream, chunk_size)):
        texts = [document.text for document in chunk]
        found = predictor.predict(texts, k=k, only=only, exclude=exclude)
        ids = [document.id for document in chunk]
        yield from prediction_rows(ids, found, threshold=threshold, names=names)
        done += len(chunk)
        if progress:
            progress(done, None)


def prediction_rows(
    ids: Iterable[str], predictions: Predictions, *, threshold: float = 0.0, names: bool = True
) -> Iterator[TagRow]:
    """Yield one row for each document of the predictions."""
    for document_id, tags in zip(ids, predictions, strict=True):
        labels = [
            {"id": tag.id, **({"name": tag.name} if names else {}), "score": round(tag.score, 6)}
            for tag in tags
            if tag.score >= threshold
        ]
        yield {"id": document_id, "labels": labels}


# --- writing ---------------------------------------------------------------------------------


@contextmanager
def open_writer(path: str | Path | None, *, names: bool = True) -> Iterator[RowSink]:
    """A function that writes rows to a file, or to stdout without one.

    Args:
        path: Ends in .jsonl, .jsonl.gz or .parquet; None or `-` is stdout, as JSONL.
        names: Whether the rows carry label names (Parquet needs to know beforehand).

    Raises:
        ConfigError: When the name's ending is none of these.
    """
    name = "-" if path is None else str(path)
    if name == "-":
        yield _line_sink(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    sink_for = next((sink for ending, sink in _SINKS.items() if name.endswith(ending)), None)
    if sink_for is None:
        raise ConfigError(
            f"cannot tell the format of '{name}': expected a name ending in "
            f"{', '.join(_SINKS)}, or - for stdout"
        )
    with atomic_write(name) as file, sink_for(file, names) as sink:
        yield sink


def _line_sink(file: IO[bytes] | gzip.GzipFile) -> RowSink:
    def write(rows: Iterable[TagRow]) -> None:
        file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)

    return write


@contextmanager
def _jsonl_sink(file: BinaryIO, names: bool) -> Iterator[RowSink]:
    yield _line_sink(file)


@contextmanager
def _gzip_sink(file: BinaryIO, names: bool) -> Iterator[RowSink]:
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        yield _line_sink(packed)


@contextmanager
def _parquet_sink(file: BinaryIO, names: bool) -> Iterator[RowSink]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name_field = [("name", pa.string())] if names else []
    tag = pa.struct([("id", pa.string()), *name_field, ("score", pa.float32())])
    schema = pa.schema([("id", pa.string()), ("labels", pa.list_(tag))])
    with pq.ParquetWriter(file, schema) as writer:

        def write(rows: Iterable[TagRow]) -> None:
            stream = iter(rows)
            while chunk := list(itertools.islice(stream, CHUNK)):
                writer.write_table(pa.Table.from_pylist(chunk, schema=schema))

        yield write


_SINKS = {
    ".jsonl": _jsonl_sink,
    ".jsonl.gz": _gzip_sink,
    ".parquet": _parquet_sink,
}
