"""Words of further texts, and of label names, that become features of a trained sparse model.

- A word that the model does not know becomes a feature where so many of the further texts have it
  as training would ask for. Pairs of words are not added.
- A word of a label's name that no text has becomes a feature of the part `NAMES`, which leaves all
  others as they are.
- Features stay sorted by spelling, so the new ones lie between the old ones: all matrices of the
  model are spread out, and the new features have no weight until a label learns them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from glocal.companions.sparse.sparse_rows import as_csr
from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.training_memory import LabelledTexts, TrainingMemory
from glocal.companions.sparse.vectoriser import NAMES, TEXT, Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary, texts_with
from glocal.companions.sparse.words import split_words
from glocal.vocabulary.label_change import LabelChange
from glocal.vocabulary.label_text import all_names

FEWEST_TEXTS = 2  # of the further texts that a word must occur in


def with_change(
    vectoriser: Vectoriser, change: LabelChange, *, n_texts: int
) -> tuple[Vectoriser, NDArray[np.int64]]:
    """Return a vectoriser that knows the words of further texts and of new labels' names.

    Args:
        vectoriser: The vectoriser of the training texts.
        change: The change of the labels; its examples are further texts if all labels learn them.
        n_texts: Number of training texts.

    Returns:
        The vectoriser, and the new place of each old feature.
    """
    places = np.arange(vectoriser.n_features)
    if change.continues and change.examples is not None:
        texts = list(change.examples.texts())
        vectoriser, places = with_words(vectoriser, texts, n_texts=n_texts)
    new = all_names(change.after)[len(change.after) - change.n_new :]
    flat = (name for names in new for name in names)
    vectoriser, later = with_names(vectoriser, flat, n_texts=n_texts)
    return vectoriser, later[places]


def with_words(
    vectoriser: Vectoriser, texts: Sequence[str], *, n_texts: int
) -> tuple[Vectoriser, NDArray[np.int64]]:
    """Return a vectoriser that knows the words of further texts as well.

    Args:
        vectoriser: The vectoriser of the training texts.
        texts: The further texts.
        n_texts: Number of training texts.

    Returns:
        The vectoriser, and the new place of each old feature.
    """
    named = {
        word for part in vectoriser.parts if part.name == NAMES for word in part.vocabulary.words
    }
    found = [
        _wider(part, _new_words(part, texts, named), n_texts + len(texts))
        for part in vectoriser.parts
    ]
    return _widened(found)


def with_names(
    vectoriser: Vectoriser, names: Iterable[str], *, n_texts: int
) -> tuple[Vectoriser, NDArray[np.int64]]:
    """Return a vectoriser that knows every word of some names.

    Args:
        vectoriser: The vectoriser of the training texts.
        names: The names.
        n_texts: Number of training texts.

    Returns:
        The vectoriser, and the new place of each old feature.
    """
    parts = list(vectoriser.parts)
    if all(part.name != NAMES for part in parts):
        nothing = Vocabulary([], np.empty(0, np.int64), np.empty(0, np.float32))
        parts.append(Part(NAMES, 1.0, nothing))
    known = {word for part in parts if part.name in (TEXT, NAMES) for word in part.vocabulary.index}
    new = dict.fromkeys((w for w in split_words(list(names)).words if w not in known), 0)
    found = [_wider(part, new if part.name == NAMES else {}, n_texts) for part in parts]
    if not any(len(part.vocabulary) for part, _ in found if part.name == NAMES):
        return vectoriser, np.arange(vectoriser.n_features)
    return _widened(found)


def _widened(
    found: Sequence[tuple[Part, NDArray[np.int64]]],
) -> tuple[Vectoriser, NDArray[np.int64]]:
    sizes = np.array([len(part.vocabulary) for part, _ in found], dtype=np.int64)
    starts = (np.cumsum(sizes) - sizes).tolist()
    places = [place + start for (_, place), start in zip(found, starts, strict=True)]
    return Vectoriser([part for part, _ in found]), np.concatenate([np.empty(0, np.int64), *places])


def _new_words(part: Part, texts: Sequence[str], named: Container[str]) -> dict[str, int]:
    """Return the words of texts that a part does not know, with the texts that have each."""
    if part.name == NAMES:
        return {}
    batch, old = part.cut(texts), part.vocabulary.index
    counts = zip(batch.words, texts_with(batch).tolist(), strict=True)
    return {
        word: n
        for word, n in counts
        if n >= FEWEST_TEXTS and word not in old and not (part.name == TEXT and word in named)
    }


def _wider(part: Part, new: Mapping[str, int], n_texts: int) -> tuple[Part, NDArray[np.int64]]:
    """Return a part with further words, of so many texts each, and where its old features are."""
    old = part.vocabulary
    if not new:
        return part, np.arange(len(old))
    words = sorted([*old.words, *new])
    index = {word: place for place, word in enumerate(words)}
    own = np.array([index[word] for word in old.words], dtype=np.int64)
    first, second = np.divmod(old.pairs, max(1, len(old.words)))
    pairs = own[first] * len(words) + own[second] if len(old.pairs) else old.pairs
    idf = np.zeros(len(words) + len(pairs), np.float32)
    places = np.concatenate([own, len(words) + np.arange(len(pairs))])
    idf[places] = old.idf
    for word, n_with in new.items():
        idf[index[word]] = np.log((1 + n_texts) / (1 + n_with)) + 1
    return replace(part, vocabulary=Vocabulary(words, pairs, idf)), places


def spread_scorer(
    scorer: LinearScorer, places: NDArray[np.int64], size: int, *, n_words: int
) -> LinearScorer:
    """Return a scorer whose features have other places, out of so many, words first."""

    def spread(part: Any, *names: str) -> Any:
        """Return a part of the scorer with some of its matrices spread; None stays None."""
        found = {name: _spread_rows(getattr(part, name), places, size) for name in names if part}
        return part and replace(part, **found)

    votes = scorer.votes
    if votes is not None:
        texts = _spread_rows(votes.texts, places[: votes.texts.shape[0]], n_words)
        votes = replace(votes, texts=texts)
    names = spread(scorer.names, "weights", "relatives", "words")
    groups = spread(scorer.groups, "weights")
    weights = _spread_rows(scorer.weights, places, size)
    return replace(scorer, weights=weights, groups=groups, votes=votes, names=names)


def spread_memory(memory: TrainingMemory, places: NDArray[np.int64], size: int) -> TrainingMemory:
    """Return the memory of texts whose features have other places, out of so many."""
    features = spread_texts(as_csr(memory.sample.features), places, size)
    return replace(memory, sample=LabelledTexts(features, as_csr(memory.sample.gold)))


def spread_texts(texts: Any, places: NDArray[np.int64], size: int) -> Any:
    """Return the CSR matrix of texts whose features have other places, out of so many."""
    columns = texts.indices
    if len(places) and places[-1] != len(places) - 1:  # otherwise all of them stay where they are
        columns = places[columns].astype(columns.dtype)
    return csr_matrix((texts.data, columns, texts.indptr), (texts.shape[0], size))


def _spread_rows(matrix: Any, places: NDArray[np.int64], size: int) -> Any:
    matrix = as_csr(matrix)
    lengths = np.zeros(size, dtype=matrix.indptr.dtype)
    lengths[places] = np.diff(matrix.indptr)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(matrix.indptr.dtype)
    return csr_matrix((matrix.data, matrix.indices, bounds), (size, matrix.shape[1]))
