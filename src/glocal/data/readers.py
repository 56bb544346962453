"""Readers of documents from files, standard input and the built-in sets.

- `read_corpus` returns a `Corpus`; a large one is moved to a memory-mapped file, so that memory
  stays bounded. `iter_documents` streams one document at a time.
- The format follows from the file's name and content (`formats/detect.py`).
- Every row is checked: its text is not blank, and it has labels if they are required. A bad row
  raises an error with its file, line and reason, or with `skip_bad_rows` is listed in
  `Corpus.skipped`. A file that is empty, truncated or unreadable always raises an error.
- The id of a row without one is its position in the file, from 0; ids may repeat unless
  `unique_ids` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from glocal.data.builtin import builtin_corpus
from glocal.data.corpus import Corpus, CorpusBuilder, Document, unicode_problem
from glocal.data.formats.detect import reader_for
from glocal.data.formats.rows import Problems, ReadOptions
from glocal.data.formats.source import Source
from glocal.errors import DataError


def read_corpus(
    path: str | Path,
    *,
    format: str = "auto",
    skip_bad_rows: bool = False,
    require_labels: bool = False,
    text_field: str = "text",
    labels_field: str = "labels",
    id_field: str = "id",
    label_separator: str = ";",
    texts_path: str | Path | None = None,
    labels_path: str | Path | None = None,
    unique_ids: bool = False,
) -> Corpus:
    """Read a corpus.

    Args:
        path: A file, `-` for standard input, or a split of a built-in set such as `icd10cm:train`.
        format: `auto`, or one of jsonl, csv, tsv, parquet, annif, text, xmc-text, xmc-sparse,
            huggingface.
        skip_bad_rows: Skip bad rows and list them in `Corpus.skipped`.
        require_labels: Treat a row without labels as a bad row.
        text_field: Field or column of the text.
        labels_field: Field or column of the labels.
        id_field: Field or column of the id; without one, the row's position, from 0.
        label_separator: Separator of labels in one string.
        texts_path: File of the texts, for an XMC sparse file.
        labels_path: File of the labels, for XMC text files with unusual names.
        unique_ids: Treat a row with the id of an earlier one as a bad row.

    Raises:
        DataError: The file or, unless they are skipped, one of its rows cannot be used.

    Example:
        >>> from glocal import read_corpus
        >>> read_corpus("train.jsonl")
        Corpus(4 documents from train.jsonl)
    """
    if (corpus := builtin_corpus(str(path))) is not None:
        return corpus
    options = ReadOptions(
        text_field=text_field,
        labels_field=labels_field,
        id_field=id_field,
        label_separator=label_separator,
        texts_path=texts_path,
        labels_path=labels_path,
    )
    source, problems = Source(path), Problems(skip=skip_bad_rows)
    builder = CorpusBuilder(source=source.name)
    try:
        check = _RowCheck(source, options, require_labels=require_labels, unique_ids=unique_ids)
        for document in _stream(source, format, options, problems, check):
            builder.add(document)
        corpus = builder.finish(skipped=problems.found)
    except BaseException:
        builder.close()
        raise
    if not len(corpus):
        raise _nothing_usable(source, problems)
    return corpus


def read_corpora(paths: Sequence[str | Path], **reading: Any) -> Corpus:
    """Read several files into one corpus; the arguments are those of `read_corpus`."""
    corpora = [read_corpus(path, **reading) for path in paths]
    if len(corpora) == 1:
        return corpora[0]
    return Corpus(
        pa.concat_tables([corpus.table for corpus in corpora]),
        source=", ".join(map(str, paths)),
        skipped=[problem for corpus in corpora for problem in corpus.skipped],
    )


def iter_documents(
    path: str | Path,
    *,
    format: str = "auto",
    skip_bad_rows: bool = False,
    require_labels: bool = False,
    on_bad_row: Callable[[DataError], None] | None = None,
    before_waiting: Callable[[], None] | None = None,
    **fields: Any,
) -> Iterator[Document]:
    """Stream documents one at a time; nothing of an earlier document is kept.

    Args:
        path: As in `read_corpus`.
        format: As in `read_corpus`.
        skip_bad_rows: Skip bad rows.
        require_labels: As in `read_corpus`.
        on_bad_row: Called with the error of each bad row, which is then skipped.
        before_waiting: Called before waiting for more lines on standard input.
        fields: Names of fields and paths of files, as in `read_corpus` (`text_field` and so on).

    Raises:
        DataError: The file or, unless they are skipped, one of its rows cannot be used.
    """
    if (corpus := builtin_corpus(str(path))) is not None:
        yield from corpus.documents()
        return
    options = ReadOptions(**fields)
    problems = Problems(skip=skip_bad_rows or on_bad_row is not None, on_bad_row=on_bad_row)
    source = Source(path, before_waiting=before_waiting)
    check = _RowCheck(source, options, require_labels=require_labels)
    yield from _stream(source, format, options, problems, check)


def _stream(
    source: Source,
    format: str,
    options: ReadOptions,
    problems: Problems,
    check: _RowCheck,
) -> Iterator[Document]:
    """Yield the documents of a source that pass the checks, each with an id."""
    reader = reader_for(source, format, options)
    n_good = 0
    for document in reader(source, options, problems):
        # Bad rows have one problem each, so this is the row's position in the file.
        row = n_good + len(problems.found)
        try:
            checked = check(document, row)
        except DataError as error:
            problems.report(error)
        else:
            n_good += 1
            yield checked
    if not n_good and not problems.found:
        raise source.error("no documents in the file; expected at least one row")


class _RowCheck:
    """Raises the problem of a bad document, and numbers documents without an id."""

    def __init__(
        self,
        source: Source,
        options: ReadOptions,
        *,
        require_labels: bool,
        unique_ids: bool = False,
    ) -> None:
        self._source = source
        self._options = options
        self._require_labels = require_labels
        # Hashes, not strings: the ids of millions of documents must not be in memory twice.
        self._seen: set[int] | None = set() if unique_ids else None

    def __call__(self, document: Document, row: int) -> Document:
        if not document.text or document.text.isspace():
            raise self._bad(document, "the text is empty; remove the row or give it a text")
        if problem := unicode_problem(document):
            raise self._bad(document, problem)
        if self._require_labels and not document.labels:
            raise self._bad(
                document,
                "the row has no labels; training needs at least one in "
                f"{self._options.labels_field!r}",
            )
        return self._identified(document, row)

    def _identified(self, document: Document, row: int) -> Document:
        if document.id == "":
            return Document(str(row), document.text, document.labels, document.line)
        if self._seen is not None:
            key = hash(document.id)
            if key in self._seen:
                raise self._bad(
                    document,
                    f"the id {document.id!r} is that of an earlier row",
                )
            self._seen.add(key)
        return document

    def _bad(self, document: Document, message: str) -> DataError:
        error = self._source.error(message, document.line)
        error.document_id = document.id or None
        return error


def _nothing_usable(source: Source, problems: Problems) -> DataError:
    return source.error(
        f"none of the {len(problems.found)} rows can be used; the first problem: "
        f"{problems.found[0]}"
    )
