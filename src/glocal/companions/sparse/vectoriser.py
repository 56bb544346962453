"""TF-IDF features of texts: words and word pairs of the whole text and of its first line.

- Short texts, which share few words, also have pieces of words as features; where a language is
  given, stems of words are features too.
- The weight of a feature is (1 + ln count) · idf. The features of the whole text are scaled to
  length one, those of the first line to `title_weight`, those of pieces to one, and all together to
  one.
- Words of label names that no training text has can be features as well. They are scaled like those
  of the text and leave the length of all others as it is.
- Fitting reads the corpus once, batch by batch; only the matrix of features grows with it.
- Texts without a known word have an empty row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glocal.arrays import GrowingArray
from glocal.companions.sparse.sparse_rows import SparseRows, as_csr
from glocal.companions.sparse.spool import WordSpool
from glocal.companions.sparse.stems import stemmed, stems_of
from glocal.companions.sparse.threads import ordered_map
from glocal.companions.sparse.word_features import Counts, Vocabulary, VocabularyBuilder
from glocal.companions.sparse.words import (
    WordBatch,
    first_lines,
    pieces_of,
    split_pieces,
    split_words,
)
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.progress import StagedProgress, silent

Spooled = Sequence[tuple[NDArray[np.int64], NDArray[np.int32]]]  # of each part

BATCH_TEXTS = 2048
_PREDICTED_TEXTS = 256  # at a time; their counts take about 100 KB for each long text
SHORT_TEXTS = 50  # mean words up to which pieces of words are features too
FEW_TEXTS = 20_000  # texts of a small corpus, where a word of a single text is a feature
_COUNTED = 1000  # texts looked at for the mean number of words and for second lines


@dataclass(frozen=True)
class Part:
    """A part of every text with its own features.

    Args:
        name: `text`, `title`, `pieces`, `stems` or `names`.
        weight: Length of its features relative to those of the whole text.
        vocabulary: Its features.
        language: The language of stems; empty for other parts.
    """

    name: str
    weight: float
    vocabulary: Vocabulary
    language: str = ""

    def cut(self, texts: Sequence[str] | pa.Array) -> WordBatch:
        """Return the words (or pieces, or stems) of this part of some texts."""
        return _cut(self.name, self.language, texts)

    def features_of(self, word: str) -> list[str]:
        """Return the pieces, or the stem, of a word."""
        return stems_of([word], self.language) if self.language else pieces_of(word)


TEXT, TITLE, PIECES, STEMS, NAMES = "text", "title", "pieces", "stems", "names"


def _cut(part: str, language: str, texts: Sequence[str] | pa.Array) -> WordBatch:
    if part == PIECES:
        return split_pieces(texts)
    batch = split_words(first_lines(texts) if part == TITLE else texts)
    return stemmed(batch, language) if part == STEMS else batch


class Vectoriser:
    """Turns texts into rows of a sparse matrix.

    Args:
        parts: The parts whose features are the columns, in this order.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return sum(len(part.vocabulary) for part in self.parts)

    @property
    def n_words(self) -> int:
        """Number of words of the whole text, which are the first columns."""
        return len(self.parts[0].vocabulary.words)

    @property
    def n_trained(self) -> int:
        """Number of columns that training texts gave, before those of names."""
        return sum(len(part.vocabulary) for part in self.parts if part.name != NAMES)

    @classmethod
    def fit(
        cls,
        corpus: Corpus,
        config: SparseConfig,
        *,
        threads: int = 1,
        progress: StagedProgress = silent,
    ) -> tuple[Vectoriser, Any]:
        """Choose the features of a corpus and weight them in its texts.

        Args:
            corpus: The training texts.
            config: The settings.
            threads: Number of threads.
            progress: Receives the number of texts read.

        Returns:
            The vectoriser, and the CSR matrix (texts, features) of the corpus, float32.
        """
        config = settled(config, corpus)
        language = "" if config.stems == "off" else config.stems
        weights = {
            TEXT: 1.0,
            TITLE: config.title_weight,
            PIECES: float(config.pieces == "on"),
            STEMS: float(bool(language)),
        }
        weights = {name: weight for name, weight in weights.items() if weight}
        with ExitStack() as stack:
            spools = {name: stack.enter_context(closing(WordSpool())) for name in weights}
            builders = {name: VocabularyBuilder(spool) for name, spool in spools.items()}
            _read_words(corpus, builders, language, threads=threads, progress=progress)
            parts, found = [], []
            for name, builder in builders.items():
                chosen = _without_pairs(config) if name in (PIECES, STEMS) else config
                vocabulary, features = builder.build(chosen, threads=threads)
                spoken = language if name == STEMS else ""
                parts.append(Part(name, weights[name], vocabulary, spoken))
                found.append(features)
            vectoriser = cls(parts)
            progress("weighing words")
            weigh = partial(vectoriser._weigh_spooled, found)
            batches = zip(*spools.values(), strict=True)
            rows = ordered_map(weigh, batches, threads=threads)
            return vectoriser, as_csr(_stack(rows, n_features=vectoriser.n_features))

    def transform(self, texts: Sequence[str], *, threads: int = 1) -> Any:
        """Return the weighted features of texts as scipy's CSR matrix; see `rows`."""
        return as_csr(self.rows(texts, threads=threads))

    def rows(self, texts: Sequence[str], *, threads: int = 1) -> SparseRows:
        """Return the weighted features of texts.

        Returns:
            (texts, features), float32, rows of length one or empty.
        """
        # No more texts a batch than a thread's share: two threads must not wait for one of them.
        size = max(1, min(_PREDICTED_TEXTS, math.ceil(len(texts) / threads)))
        starts = range(0, len(texts), size)
        batches = (texts[start : start + size] for start in starts)
        rows = ordered_map(self._batch_rows, batches, threads=threads)
        return _stack(rows, n_features=self.n_features)

    def _batch_rows(self, texts: Sequence[str]) -> Counts:
        counted = []
        of_text = None
        for part in self.parts:
            batch = of_text if part.name == NAMES and of_text else part.cut(texts)
            of_text = batch if part.name == TEXT else of_text
            ids = part.vocabulary.word_ids(batch.words)[batch.codes]
            counted.append(part.vocabulary.count(batch.lengths, ids))
        return self._weigh(counted)

    def _weigh_spooled(self, features: Sequence[NDArray[np.int32]], batches: Spooled) -> Counts:
        """Return the weighted features of texts whose words were spooled, part by part."""
        counted = [
            part.vocabulary.count(lengths, of_word[ids])
            for part, of_word, (lengths, ids) in zip(self.parts, features, batches, strict=True)
        ]
        return self._weigh(counted)

    def _weigh(self, counted: Iterable[Counts]) -> Counts:
        """Join the weighted features of all parts, text by text."""
        rows, columns, values, offset = [], [], [], 0
        n_texts, n_trained = 0, self.n_trained
        of_text = np.empty(0)
        for part, counts in zip(self.parts, counted, strict=True):
            n_texts = len(counts.indptr) - 1
            row = np.repeat(np.arange(n_texts), np.diff(counts.indptr))
            value = (1 + np.log(counts.counts)) * part.vocabulary.idf[counts.indices]
            length = _lengths(value, row, n_texts)
            if part.name == TEXT:
                of_text = length
            if part.name == NAMES:
                length = np.where(of_text > 0, of_text, length)
            rows.append(row)
            columns.append(counts.indices.astype(np.int64) + offset)
            values.append(part.weight * (value / np.maximum(length, 1e-12)[row]))
            offset += len(part.vocabulary)
        row, column, value = np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
        order = np.argsort(row, kind="stable")  # columns stay sorted within a text
        row, column, value = row[order], column[order], value[order]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_texts))])
        length = _lengths(np.where(column < n_trained, value, 0.0), row, n_texts)
        if n_trained < self.n_features:
            length = np.where(length > 0, length, _lengths(value, row, n_texts))
        value = (value / np.maximum(length, 1e-12)[row]).astype(np.float32)
        return Counts(indptr, column.astype(np.int32), value)


def settled(config: SparseConfig, corpus: Corpus) -> SparseConfig:
    """Resolve settings that depend on the texts.

    These are the use of pieces, the rarest words kept, and the features of the first line, which
    only repeat the text's where texts have a single line.
    """
    pieces, fewest, title_weight = config.pieces, config.min_words, config.title_weight
    places = np.linspace(0, len(corpus) - 1, min(len(corpus), _COUNTED)).astype(np.int64)
    texts = list(corpus.take(places).texts())
    if pieces == "auto":
        words = split_words(texts).lengths
        pieces = "on" if len(words) and words.mean() <= SHORT_TEXTS else "off"
    if not fewest:
        fewest = 1 if len(corpus) < FEW_TEXTS else 2
    if not any("\n" in text.strip() for text in texts):
        title_weight = 0.0
    return replace(config, pieces=pieces, min_words=fewest, title_weight=title_weight)


def _without_pairs(config: SparseConfig) -> SparseConfig:
    return replace(config, pairs=False, min_words=max(2, config.min_words))


def _read_words(
    corpus: Corpus,
    builders: dict[str, VocabularyBuilder],
    language: str,
    *,
    threads: int,
    progress: StagedProgress,
) -> None:
    def cut(start: int) -> list[WordBatch]:
        texts = corpus.table.column("text").slice(start, BATCH_TEXTS).combine_chunks()
        return [_cut(part, language, texts) for part in builders]

    report = progress("reading words")
    starts = range(0, len(corpus), BATCH_TEXTS)
    for start, batches in zip(starts, ordered_map(cut, starts, threads=threads), strict=True):
        for builder, batch in zip(builders.values(), batches, strict=True):
            builder.add(batch)
        report(min(len(corpus), start + BATCH_TEXTS), len(corpus))


def _lengths(values: NDArray[Any], rows: NDArray[np.int64], n_rows: int) -> NDArray[np.float64]:
    return np.sqrt(np.bincount(rows, values.astype(np.float64) ** 2, minlength=n_rows))


def _stack(batches: Iterable[Counts], *, n_features: int) -> SparseRows:
    """Return one matrix of the rows of all batches."""
    bounds, offset = [np.zeros(1, dtype=np.int64)], 0
    columns, values = GrowingArray(np.int32), GrowingArray(np.float32)
    for batch in batches:
        bounds.append(batch.indptr[1:] + offset)
        columns.add(batch.indices)
        values.add(batch.counts)
        offset += len(batch.indices)
    indptr = np.concatenate(bounds)
    # 32-bit bounds where they fit: scipy then works on the indices as they are, without copies.
    narrow = indptr if offset > np.iinfo(np.int32).max else indptr.astype(np.int32)
    return SparseRows(values.whole(), columns.whole(), narrow, (len(indptr) - 1, n_features))
