"""Sources of word vectors: a text file, or training on a corpus.

- Files are in word2vec's or GloVe's text format, plain or gzipped: a word and its numbers on each
  line, with or without a first line of counts. Errors name the line.
- Only the requested words of a file are kept, so that a vocabulary of millions needs little memory.
- Training is gensim's word2vec in one thread: the same texts and seed give the same vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from glocal.arrays import Floats32
from glocal.data.corpus import Corpus
from glocal.data.formats.rows import Problems
from glocal.data.formats.source import Source
from glocal.encoders.static import StaticVectors
from glocal.encoders.word_lookup import VocabularyLookup, plain_words, word_forms
from glocal.errors import DataError, require
from glocal.progress import Progress

EPOCHS = 5
TEXTS_PER_COUNT = 1000  # texts for which the minimum count of a word grows by one …
MOST_COUNT = 5  # … up to word2vec's default


def read_word_vectors(
    path: str | Path, *, keep: Collection[str] | None = None, max_words: int = 500
) -> StaticVectors:
    """Read word vectors from a text file.

    Args:
        path: The file; the first line of a repeated word is used.
        keep: The words to keep; all by default.
        max_words: Number of words to read of each text.

    Raises:
        DataError: The file cannot be read, a line is malformed, or no word is left.
    """
    source = _text_source(path)
    vectors: dict[str, Floats32] = {}
    n_lines, promised, width = 0, None, 0
    for line, text in source.lines(Problems()):
        if line == 1 and (counts := _header(text)) is not None:
            promised, width = counts
            continue
        if not text.strip():
            continue
        n_lines += 1
        width = width or len(text.split()) - 1
        word, numbers = _split(source, line, text, width)
        if word not in vectors and (keep is None or word in keep):
            vectors[word] = _numbers(source, line, numbers)
    if promised is not None and promised != n_lines:
        raise source.error(
            f"the first line promises {promised:,} words, and {n_lines:,} follow; the file may be "
            "cut off: fetch it again, or remove its first line"
        )
    if not vectors:
        raise source.error(
            "has no word of these texts; give vectors of their language, or train some on them "
            "with teacher.vectors=corpus"
            if n_lines
            else "has no word vectors; expected lines of a word and its numbers"
        )
    matrix = np.stack(list(vectors.values()))
    return StaticVectors(VocabularyLookup(list(vectors)), matrix, max_words=max_words)


def word_vector_width(path: str | Path) -> int:
    """Return the width of the vectors in a file, from its first lines.

    Raises:
        DataError: The file cannot be read, or holds no vectors.
    """
    source = _text_source(path)
    for line, text in source.lines(Problems()):
        if line == 1 and (header := _header(text)) is not None:
            return header[1]
        if text.strip():
            return len(text.split()) - 1
    raise source.error("has no word vectors; expected lines of a word and its numbers")


def _text_source(path: str | Path) -> Source:
    source = Source(path)
    if source.plain_name.endswith(".bin"):
        raise source.error("is in word2vec's binary format; expected the text format (save it so)")
    return source


def _header(text: str) -> tuple[int, int] | None:
    """Return the number of words and the width, if the first line is a header."""
    parts = text.split()
    if len(parts) == 2 and all(part.isdigit() for part in parts):
        return int(parts[0]), int(parts[1])
    return None


def _split(source: Source, line: int, text: str, width: int) -> tuple[str, list[str]]:
    """Return the word, which may contain spaces, and its numbers."""
    word, *numbers = text.rstrip().rsplit(" ", width)
    if len(numbers) != width or not width:
        raise source.error(
            f"{text[:40]!r} has {len(text.split()) - 1} numbers; expected a word and "
            f"{width or 'its'} numbers separated by single spaces",
            line,
        )
    return word, numbers


def _numbers(source: Source, line: int, numbers: list[str]) -> Floats32:
    try:
        vector = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise source.error(f"not a line of a word and numbers: {error}", line) from error
    if not np.isfinite(vector).all():
        raise source.error("a number of the vector is not finite", line)
    return vector


def words_of(corpus: Corpus, extra: Sequence[str] = (), *, max_words: int) -> set[str]:
    """Return every form in which a word of the texts may be in a vocabulary.

    Args:
        corpus: The texts.
        extra: More texts, such as the names of labels.
        max_words: Number of words read of each text.
    """
    found = {word for text in extra for word in text.split()}
    for texts in corpus.iter_texts():
        for text in texts:
            found.update(text.split(None, max_words)[:max_words])
    return {form for word in found for form in word_forms(word)}


def require_gensim() -> ModuleType:
    """Import the module that trains word vectors, or name the extra that brings it."""
    return require("gensim.models.word2vec", extra="vectors", purpose="training vectors")


def train_word_vectors(
    corpus: Corpus,
    *,
    dimensions: int = 300,
    max_words: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> StaticVectors:
    """Train word2vec on the texts of a corpus.

    Args:
        corpus: The texts.
        dimensions: Width of the vectors.
        max_words: Number of words read of each text.
        seed: Random seed.
        progress: Called with the passes over the texts that are done, and their number.

    Raises:
        DataError: No word occurs often enough.
        MissingExtraError: gensim is not installed.
    """
    word2vec: Any = require_gensim()
    min_count = max(1, min(MOST_COUNT, len(corpus) // TEXTS_PER_COUNT))
    model = word2vec.Word2Vec(
        vector_size=dimensions, min_count=min_count, workers=1, seed=seed, epochs=EPOCHS
    )
    sentences = _Sentences(corpus, max_words)
    model.build_vocab(sentences)
    if not len(model.wv):
        raise DataError(
            f"no word occurs {min_count} times in the {len(corpus):,} texts", path=corpus.source
        )
    model.train(
        sentences,
        total_examples=model.corpus_count,
        epochs=EPOCHS,
        callbacks=[] if progress is None else [_passes(progress)],
    )
    return StaticVectors(
        VocabularyLookup(model.wv.index_to_key), model.wv.vectors, max_words=max_words
    )


class _Sentences:
    """The words of each text; can be iterated over more than once."""

    def __init__(self, corpus: Corpus, max_words: int) -> None:
        self._corpus, self._max_words = corpus, max_words

    def __iter__(self) -> Iterator[list[str]]:
        for texts in self._corpus.iter_texts():
            for text in texts:
                yield plain_words(text, self._max_words)


def _passes(progress: Progress) -> Any:
    """Return a gensim callback that counts the passes over the texts."""
    from gensim.models.callbacks import CallbackAny2Vec

    class Passes(CallbackAny2Vec):  # type: ignore[misc]
        done = 0

        def on_epoch_end(self, model: Any) -> None:
            self.done += 1
            progress(self.done, EPOCHS)

    return Passes()
