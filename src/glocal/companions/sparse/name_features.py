"""Features of label names: their words, and words like them.

- Words that begin like a word of the name (`fishery` and `fisheries`, `immunology` and
  `immunological`) count too, as in any inflected language, and less than the word itself.
- Pieces of words are not used: similar spelling is too little evidence for a label without texts.
- Words of names that no training text has are features of their own (`NAMES`), which leave the
  other features of a text as they are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import eq
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags, hstack

from glocal.companions.sparse.name_matcher import NameMatcher
from glocal.companions.sparse.vectoriser import NAMES, PIECES, STEMS, TEXT, TITLE, Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.companions.sparse.words import split_words

LIKE_WEIGHT = 0.7  # weight of a word that differs from one of the name in its ending
DISTANT_WEIGHT = 0.5  # weight of a word that differs in a long ending of one of the two
ENDING = 3  # last letters in which words may differ
LONG_ENDING = 6  # last letters in which the longer of two words may differ
BEGINNING = 4  # first letters they must share
SHARED = 0.6  # and the part of the longer word they must share
TITLE_SHARE = 0.3  # weight of a name in the first line, relative to that of other words there


def words_like(word: str, vocabulary: Vocabulary) -> Iterator[tuple[int, float]]:
    """Yield the features of words with the same beginning and another ending, and their weights."""
    if len(word) < BEGINNING or not word.isalpha():
        return
    stem, words = word[: max(BEGINNING, math.ceil(SHARED * len(word)))], vocabulary.words
    for feature in range(bisect_left(words, stem), len(words)):
        other = words[feature]
        if not other.startswith(stem):
            return
        if other == word or not other.isalpha():
            continue
        shared = sum(takewhile(bool, map(eq, word, other)))
        short, long = sorted((len(word), len(other)))
        if shared >= long - ENDING:
            yield feature, LIKE_WEIGHT
        elif shared >= max(short - ENDING, long - LONG_ENDING, SHARED * long):
            yield feature, DISTANT_WEIGHT


def name_features(vectoriser: Vectoriser, names: Sequence[str]) -> Any:
    """Return the features of names and of similar words.

    Returns:
        (F, names) float32 CSC matrix, columns of length one or empty.
    """
    rows = [_part_rows(part, names) for part in vectoriser.parts]
    lengths = [_lengths(own) for own in rows]
    for place, part in enumerate(vectoriser.parts):
        if part.name == NAMES:  # words of the text as well, though no training text has them
            lengths[0] = lengths[place] = np.hypot(lengths[0], lengths[place])
    parts = [
        (part.weight * (TITLE_SHARE if part.name == TITLE else 1.0)) * (_inverse(length) @ own)
        for part, own, length in zip(vectoriser.parts, rows, lengths, strict=True)
    ]
    together = hstack(parts, format="csr")
    scale = diags(1 / np.maximum(_lengths(together), 1e-12))
    return (scale @ together).astype(np.float32).T.tocsc()


def _part_rows(part: Part, names: Sequence[str]) -> Any:
    """Return (names, features of the part): IDF of a name's words, and less for similar ones."""
    vocabulary = part.vocabulary
    if part.name == PIECES:
        return csr_matrix((len(names), len(vocabulary)))
    batch = part.cut(names)
    own = vocabulary.count(batch.lengths, vocabulary.word_ids(batch.words)[batch.codes])
    shape = (len(names), len(vocabulary))
    rows = csr_matrix(
        ((1 + np.log(own.counts)) * vocabulary.idf[own.indices], own.indices, own.indptr), shape
    )
    if part.name == STEMS:
        return rows
    like = _like(batch.words, vocabulary)
    of_names = csr_matrix(
        (
            np.ones(len(batch.codes)),
            (np.repeat(np.arange(len(names)), batch.lengths), batch.codes),
        ),
        (len(names), len(batch.words)),
    )
    return rows + (of_names @ like).multiply(vocabulary.idf[None, :]).tocsr()


def _like(words: Sequence[str], vocabulary: Vocabulary) -> Any:
    """Return (words, features) the weights of the features that are like each word."""
    found = [
        (row, feature, weight)
        for row, word in enumerate(words)
        for feature, weight in words_like(word, vocabulary)
    ]
    rows, columns, weights = zip(*found, strict=True) if found else ((), (), ())
    shape = (len(words), len(vocabulary))
    return csr_matrix((np.array(weights, np.float64), (rows, columns)), shape)


def name_matcher(
    vectoriser: Vectoriser, names: Sequence[Sequence[str]], *, trained: bool = False
) -> NameMatcher:
    """Return the matcher of labels by their names, with slopes of one and without relatives.

    Args:
        vectoriser: Turns names into features.
        names: All names of each label; labels without any are not scored.
        trained: Whether the labels have training texts.
    """
    labels = np.array([place for place, own in enumerate(names) if own], dtype=np.int64)
    flat = [name for own in names for name in own]
    bounds = np.cumsum([0, *(len(own) for own in names if own)]).astype(np.int64)
    batch = split_words(flat)
    rows = np.repeat(np.arange(len(flat)), batch.lengths)
    shape = (len(flat), len(batch.words))
    of_names = csr_matrix((np.ones(len(rows)), (rows, batch.codes)), shape)
    of_names.data[:] = 1  # a word that a name repeats counts once
    masses = of_names @ diags(_rarity(vectoriser, batch.words))
    totals = np.asarray(masses.sum(axis=1)).ravel()
    shares = diags(1 / np.maximum(totals, 1e-12)) @ masses
    together = name_features(vectoriser, ["; ".join(own) for own in names if own])
    return NameMatcher(
        labels,
        np.ones(len(labels), np.float32),
        together.tocsr(),
        csr_matrix(together.shape, dtype=np.float32),
        _standing_for(vectoriser, batch.words),
        shares.T.tocsr().astype(np.float32),
        bounds,
        np.full(len(labels), trained),
    )


def _rarity(vectoriser: Vectoriser, words: Sequence[str]) -> Any:
    """Return the IDF of each word in texts, that of a word of no text where it is unknown."""
    rarity = np.full(
        len(words), max(float(part.vocabulary.idf.max(initial=1)) for part in vectoriser.parts)
    )
    for part in vectoriser.parts:
        if part.name in (TEXT, NAMES):
            ids = part.vocabulary.word_ids(words)
            rarity[ids >= 0] = part.vocabulary.idf[ids[ids >= 0]]
    return rarity


def _standing_for(vectoriser: Vectoriser, words: Sequence[str]) -> Any:
    """Return (F, words) how well each feature stands for each word of names."""
    parts = []
    for part in vectoriser.parts:
        size = len(part.vocabulary)
        ids = part.vocabulary.word_ids(words)
        weight = 1.0
        if part.name == STEMS:
            stems = [part.features_of(word)[0] for word in words]
            ids, weight = part.vocabulary.word_ids(stems), LIKE_WEIGHT
        if part.name not in (TEXT, NAMES, STEMS):
            ids[:] = -1
        known = np.flatnonzero(ids >= 0)
        own = csr_matrix((np.full(len(known), weight), (known, ids[known])), (len(words), size))
        parts.append(own + _like(words, part.vocabulary) if part.name in (TEXT, NAMES) else own)
    return hstack(parts, format="csr").T.tocsr().astype(np.float32)


def _lengths(matrix: Any) -> Any:
    return np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())


def _inverse(lengths: Any) -> Any:
    return diags(1 / np.maximum(lengths, 1e-12))
