"""Prediction of any number of texts in bounded memory, in their order.

- Documents are read, predicted and written in chunks; nothing of an earlier chunk is kept.
- One row for each document, best label first:
  `{"id": …, "labels": [{"id": …, "name": …, "score": …}, …]}`; a row of the input that cannot be
  used becomes `{"id": …, "labels": [], "error": …}`.
- With a model for each language, each text is tagged by the model of its own.
- While a chunk is tagged, the next ones are read and prepared, and the one before is written.
- A chunk ends early when standard input pauses, so that answers do not wait for later texts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from glocal.control_characters import escape
from glocal.data.readers import iter_documents
from glocal.errors import DataError
from glocal.predict.language_routing import LanguageRoutes
from glocal.predict.overlap import Overlap
from glocal.predict.tag_files import RowSink, TagRow
from glocal.progress import Progress, report
from glocal.ranking.decision import Decision, choose_tags

if TYPE_CHECKING:
    from glocal.data.corpus import Document
    from glocal.ranking.predictions import Predictions
    from glocal.vocabulary.label_space import LabelSpace

BadRows = Literal["report", "skip", "stop"]
# Documents in memory at a time: enough for length-sorted batches of an encoder to pay off, and for
# all threads that read words.
CHUNK, WORDS_CHUNK = 2048, 512

Prepared = tuple["TopKPredictor", list[int], Sequence[str]]  # a model, places of texts, the texts
Tagged = tuple[list[int], "Predictions"]  # places of texts, their tags


class TopKPredictor(Protocol):
    """A model that gives the best labels of texts."""

    labels: LabelSpace
    decision: Decision

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int,
        only: Sequence[str] | None,
        exclude: Sequence[str] | None,
    ) -> Predictions:
        """Return the best labels of each text."""


@dataclass
class RowReader:
    """Reads documents chunk by chunk.

    Attributes:
        paths: The files.
        size: Rows of a chunk.
        bad_rows: What becomes of rows that cannot be used; see `predict_file`.
        reading: Arguments of `iter_documents`.
        problems: One sentence for each row that cannot be used, as far as the input is read.
        n_good: Documents read.
        pending: Rows read of the next chunk.
    """

    paths: Sequence[str | Path]
    size: int
    bad_rows: BadRows
    reading: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    n_good: int = 0
    pending: list[Document | DataError] = field(default_factory=list)

    def chunks(
        self, *, before_waiting: Callable[[], None] | None = None
    ) -> Iterator[list[Document | DataError]]:
        """Yield the rows of each chunk; a bad row is an error."""
        documents = iter_documents(
            *self.paths,
            on_bad_row=None if self.bad_rows == "stop" else self._note,
            before_waiting=before_waiting,
            **self.reading,
        )
        for document in documents:
            self.pending.append(document)
            self.n_good += 1
            if len(self.pending) >= self.size:
                yield self.take()
        if self.pending:
            yield self.take()

    def take(self) -> list[Document | DataError]:
        """Return the rows read of the next chunk, which then starts behind them."""
        rows, self.pending = self.pending, []
        return rows

    def check_usable(self) -> None:
        """Raise an error where no row could be used."""
        if self.problems and not self.n_good:
            raise DataError(
                f"none of the {len(self.problems)} rows can be used; the first problem: "
                f"{self.problems[0]}"
            )

    def _note(self, error: DataError) -> None:
        self.problems.append(error.message)
        if self.bad_rows == "report":
            self.pending.append(error)


def predict_file(
    predictor: TopKPredictor | LanguageRoutes,
    paths: str | Path | Sequence[str | Path],
    write: RowSink,
    *,
    bad_rows: BadRows = "report",
    chunk_size: int = CHUNK,
    progress: Progress | None = None,
    reading: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[str]:
    """Tag the documents of files or of standard input and write the rows as they come.

    Args:
        predictor: A loaded model, or models for several languages.
        paths: A file or several, or `-` for standard input.
        write: Receives the rows of each chunk.
        bad_rows: `report` writes a row with an `error` for each row that cannot be used, `skip`
            writes none, `stop` raises at the first, after the rows before it are written.
        chunk_size: Documents held in memory.
        progress: Called with the documents done and None, as the total is not known.
        reading: Arguments of `iter_documents`.
        options: Arguments of `Tagging`.

    Returns:
        One sentence for each row that could not be used.

    Raises:
        DataError: The file cannot be read, no row can be used, or one cannot with `stop`.
    """
    tagging = Tagging(predictor, **options)
    overlap = Overlap(tagging.prepare, tagging.tag, tagging.writer(write, progress))
    given = [paths] if isinstance(paths, str | Path) else paths
    rows = RowReader(given, chunk_size, bad_rows, reading or {})

    def write_all() -> None:
        if rows.pending:
            overlap.put(rows.take())
        overlap.drain()

    try:
        for chunk in rows.chunks(before_waiting=write_all):
            overlap.put(chunk)
    finally:
        try:
            write_all()
        finally:
            overlap.close()
    rows.check_usable()
    return rows.problems


def predict_rows(
    predictor: TopKPredictor | LanguageRoutes,
    documents: Iterable[Document | DataError],
    *,
    chunk_size: int = CHUNK,
    progress: Progress | None = None,
    **options: Any,
) -> Iterator[TagRow]:
    """Tag a stream of documents, in its order.

    Without k and threshold, the decision stored with the model gives each text its tags.

    Args:
        predictor: A loaded model, or models for several languages.
        documents: Read lazily, `chunk_size` at a time; an error stands for a bad row.
        chunk_size: Documents held in memory.
        progress: Called with the documents done and None, as the total is not known.
        options: Arguments of `Tagging`.
    """
    stream, done = iter(documents), 0
    tagging = Tagging(predictor, **options)
    while chunk := list(itertools.islice(stream, chunk_size)):
        yield from tagging.rows(chunk, tagging.tag(chunk, tagging.prepare(chunk)))
        done += len(chunk)
        report(progress, done, None)


@dataclass(frozen=True)
class Tagging:
    """The stages of tagging a chunk, each text by its own model.

    Args:
        predictor: A loaded model, or models for several languages.
        k: Largest number of labels for each document.
        threshold: Lowest probability of a label.
        names: Add the name of each label to its id.
        only: Label ids to choose from; all by default.
        exclude: Label ids never to predict.
    """

    predictor: TopKPredictor | LanguageRoutes
    k: int | None = None
    threshold: float | None = None
    names: bool = True
    only: Sequence[str] | None = None
    exclude: Sequence[str] | None = None

    def prepare(self, chunk: Sequence[Document | DataError]) -> list[Prepared]:
        """Return each model that has texts in a chunk, with their places and the texts it read."""
        from glocal.predict.collate import prepare_texts
        from glocal.predict.predictor import Predictor

        good = [place for place, row in enumerate(chunk) if not isinstance(row, DataError)]
        texts = [row.text for row in chunk if not isinstance(row, DataError)]
        models: Iterable[tuple[TopKPredictor, list[int]]]
        if isinstance(self.predictor, LanguageRoutes):
            models = self.predictor.divide(texts)
        else:
            models = [(self.predictor, list(range(len(texts))))] if texts else []
        found = []
        for model, positions in models:
            own: Sequence[str] = [texts[position] for position in positions]
            if isinstance(model, Predictor):
                own = prepare_texts(model, own, only=self.only, exclude=self.exclude)
            found.append((model, [good[position] for position in positions], own))
        return found

    def tag(self, chunk: Sequence[Document | DataError], prepared: list[Prepared]) -> list[Tagged]:
        """Return the tags of a chunk, with their places in it."""
        return [
            (
                places,
                choose_tags(
                    functools.partial(model.predict, own, only=self.only, exclude=self.exclude),
                    len(model.labels),
                    model.decision,
                    k=self.k,
                    threshold=self.threshold,
                ),
            )
            for model, places, own in prepared
        ]

    def rows(self, chunk: Sequence[Document | DataError], tagged: list[Tagged]) -> Iterator[TagRow]:
        """Yield the rows of a chunk."""
        rows: dict[int, TagRow] = {}
        for places, found in tagged:
            ids = [chunk[place].id for place in places]  # type: ignore[union-attr]
            rows.update(zip(places, prediction_rows(ids, found, names=self.names), strict=True))
        for place, document in enumerate(chunk):
            yield _error_row(document) if isinstance(document, DataError) else rows[place]

    def writer(
        self, write: RowSink, progress: Progress | None
    ) -> Callable[[Sequence[Document | DataError], list[Tagged]], None]:
        """Return a function that writes chunks and reports how many documents are written."""
        written = 0

        def write_chunk(chunk: Sequence[Document | DataError], tagged: list[Tagged]) -> None:
            nonlocal written
            write(self.rows(chunk, tagged))
            written += sum(not isinstance(document, DataError) for document in chunk)
            report(progress, written, None)

        return write_chunk


def _error_row(error: DataError) -> TagRow:
    """Return the row for a bad row of the input, as valid Unicode."""
    document_id = None if error.document_id is None else escape(error.document_id)
    return {"id": document_id, "labels": [], "error": escape(error.message)}


def prediction_rows(
    ids: Iterable[str], predictions: Predictions, *, names: bool = True
) -> Iterator[TagRow]:
    """Yield one row for each document of the predictions."""
    for document_id, tags in zip(ids, predictions, strict=True):
        labels = [
            {"id": tag.id, **({"name": tag.name} if names else {}), "score": round(tag.score, 6)}
            for tag in tags
        ]
        yield {"id": document_id, "labels": labels}
