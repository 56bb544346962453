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

import dataclasses
import glob
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from glocal.data.builtin import builtin_corpus
from glocal.data.corpus import Corpus, CorpusBuilder, Document, unicode_problem
from glocal.data.formats.detect import reader_for
from glocal.data.formats.fields import ReadOptions
from glocal.data.formats.findings import Findings
from glocal.data.formats.rows import Problems
from glocal.data.formats.separators import DEFAULT
from glocal.data.formats.source import Source
from glocal.data.remote import is_remote
from glocal.errors import DataError, Remedy

logger = logging.getLogger(__name__)


def read_corpus(
    path: str | Path,
    *,
    format: str = "auto",
    skip_bad_rows: bool = False,
    require_labels: bool = False,
    text_field: str | Sequence[str] = "text",
    labels_field: str = "labels",
    id_field: str = "id",
    label_separator: str | None = None,
    encoding: str = "auto",
    texts_path: str | Path | None = None,
    labels_path: str | Path | None = None,
    unique_ids: bool = False,
    announce: bool = True,
) -> Corpus:
    """Read a corpus.

    Args:
        path: A file, a folder of texts, a pattern such as `part-*.jsonl`, `-` for standard input,
            or a split of a built-in set such as `icd10cm:train`.
        format: `auto`, or one of jsonl, csv, tsv, parquet, feather, annif, fasttext, text,
            xmc-text, xmc-sparse, huggingface, annif-folder.
        skip_bad_rows: Skip bad rows and list them in `Corpus.skipped`.
        require_labels: Treat a row without labels as a bad row.
        text_field: Field or column of the text, such as `text` or `metadata.abstract`; several are
            joined by a line break.
        labels_field: Field or column of the labels.
        id_field: Field or column of the id; without one, the row's position, from 0.
        label_separator: Separator of labels in one string; by default it is detected.
        encoding: Encoding of a text file; `auto` detects it.
        texts_path: File of the texts, for an XMC sparse file.
        labels_path: File of the labels, for XMC text files with unusual names.
        unique_ids: Treat a row with the id of an earlier one as a bad row.
        announce: Log what was detected, where it differs from a plain file.

    Raises:
        DataError: The file or, unless they are skipped, one of its rows cannot be used.

    Example:
        >>> from glocal import read_corpus
        >>> read_corpus("train.jsonl")
        Corpus(4 documents from train.jsonl)
    """
    options = ReadOptions(
        text_field=text_field,
        labels_field=labels_field,
        id_field=id_field,
        label_separator=label_separator,
        texts_path=texts_path,
        labels_path=labels_path,
    )
    corpora = []
    for name in expand_paths([path]):
        if (corpus := builtin_corpus(str(name))) is None:
            source = Source(name, encoding=encoding)
            check = _RowCheck(source, labels_field, require_labels, unique_ids)
            problems = Problems(skip=skip_bad_rows)
            corpus = _read(source, _stream(source, format, options, problems, check), problems)
            if announce:
                _announce(source.name, source.findings)
        corpora.append(corpus)
    return _joined(corpora, source=str(path))


def read_corpora(paths: Sequence[str | Path], **reading: Any) -> Corpus:
    """Read several files into one corpus; the arguments are those of `read_corpus`."""
    corpora = [read_corpus(path, **reading) for path in paths]
    return _joined(corpora, source=", ".join(map(str, paths)))


def expand_paths(paths: Sequence[str | Path]) -> list[str | Path]:
    """Replace patterns such as `part-*.jsonl` by the files they match, in order of their names.

    Raises:
        DataError: A pattern matches no file.
    """
    found: list[str | Path] = []
    for path in paths:
        pattern = str(path)
        if not glob.has_magic(pattern) or is_remote(pattern) or os.path.exists(pattern):
            found.append(path)
        elif matches := sorted(glob.glob(pattern, recursive=True)):
            found += matches
        else:
            raise DataError("no file matches this pattern; check the path", path=pattern)
    return found


def _read(source: Source, documents: Iterator[Document], problems: Problems) -> Corpus:
    builder = CorpusBuilder(source=source.name)
    try:
        for document in documents:
            builder.add(document)
        corpus = builder.finish(skipped=problems.found)
    except BaseException:
        builder.close()
        raise
    if not len(corpus):
        raise source.error(
            f"none of the {len(problems.found)} rows can be used; the first problem: "
            f"{problems.found[0]}"
        )
    corpus.detected = {source.name: source.findings.to_dict()}
    return corpus


def _joined(corpora: Sequence[Corpus], *, source: str) -> Corpus:
    if len(corpora) == 1:
        return corpora[0]
    joined = Corpus(
        pa.concat_tables([corpus.table for corpus in corpora]),
        source=source,
        skipped=[problem for corpus in corpora for problem in corpus.skipped],
    )
    for corpus in corpora:
        joined.detected |= corpus.detected
    return joined


def _announce(name: str, findings: Findings) -> None:
    """Log what was detected about a file, and what is odd about it."""
    if summary := findings.summary():
        logger.info("%s: %s", name, summary)
    for warning in findings.warnings():
        logger.warning("%s: %s", name, warning)


def iter_documents(
    *paths: str | Path,
    format: str = "auto",
    skip_bad_rows: bool = False,
    require_labels: bool = False,
    encoding: str = "auto",
    on_bad_row: Callable[[DataError], None] | None = None,
    before_waiting: Callable[[], None] | None = None,
    **fields: Any,
) -> Iterator[Document]:
    """Stream the documents of files one at a time; nothing of an earlier document is kept.

    No rows are read ahead, so the separator of labels in one string is `;` unless it is given.

    Args:
        paths: As in `read_corpus`.
        format: As in `read_corpus`.
        skip_bad_rows: Skip bad rows.
        require_labels: As in `read_corpus`.
        encoding: As in `read_corpus`.
        on_bad_row: Called with the error of each bad row, which is then skipped.
        before_waiting: Called before waiting for more lines on standard input.
        fields: Names of fields and paths of files, as in `read_corpus` (`text_field` and so on).

    Raises:
        DataError: The file or, unless they are skipped, one of its rows cannot be used.
    """
    options = ReadOptions(**fields)
    if options.label_separator is None:
        options = dataclasses.replace(options, label_separator=DEFAULT)
    for path in expand_paths(paths):
        if (corpus := builtin_corpus(str(path))) is not None:
            yield from corpus.documents()
            continue
        problems = Problems(skip=skip_bad_rows or on_bad_row is not None, on_bad_row=on_bad_row)
        source = Source(path, encoding=encoding, before_waiting=before_waiting)
        check = _RowCheck(source, options.labels_field, require_labels)
        yield from _stream(source, format, options, problems, check)
        _announce(source.name, source.findings)


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
        with problems:
            checked = check(document, row)
            n_good += 1
            yield checked
    if not n_good and not problems.found:
        raise source.error("no documents in the file; expected at least one row")


@dataclass(slots=True)
class _RowCheck:
    """Raises the problem of a bad document, and numbers documents without an id."""

    source: Source
    labels_field: str
    require_labels: bool
    unique_ids: bool = False
    # Hashes, not strings: the ids of millions of documents must not be in memory twice.
    seen: set[int] = field(default_factory=set)

    def __call__(self, document: Document, row: int) -> Document:
        if not document.text or document.text.isspace():
            raise self._bad(document, "the text is empty; remove the row or give it a text")
        if problem := unicode_problem(document):
            raise self._bad(document, problem)
        if self.require_labels and not document.labels:
            raise self._bad(
                document,
                f"the row has no labels; training needs at least one in {self.labels_field!r}",
                Remedy("labels_field", "name another field", value="…"),
            )
        if document.id == "":
            return Document(str(row), document.text, document.labels, document.line)
        if self.unique_ids:
            key = hash(document.id)
            if key in self.seen:
                raise self._bad(document, f"the id {document.id!r} is that of an earlier row")
            self.seen.add(key)
        return document

    def _bad(self, document: Document, message: str, *remedies: Remedy) -> DataError:
        error = self.source.error(message, document.line, remedies=remedies)
        error.document_id = document.id or None
        return error
