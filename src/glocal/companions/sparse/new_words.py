"""Words of further texts that become features of a trained sparse model.

- A word that the model does not know becomes a feature where so many of the further texts have it
  as training would ask for. Pairs of words are not added.
- Features stay sorted by spelling, so the new ones lie between the old ones: all matrices of the
  model are spread out, and the new features have no weight until a label learns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_rows import as_csr
from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.training_memory import LabelledTexts, TrainingMemory
from glocal.companions.sparse.vectoriser import Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary, texts_with

FEWEST_TEXTS = 2  # of the further texts that a word must occur in


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
    parts, places, offset = [], [], 0
    for part in vectoriser.parts:
        wider, place = _wider(part, texts, n_texts + len(texts))
        parts.append(wider)
        places.append(place + offset)
        offset += len(wider.vocabulary)
    return Vectoriser(parts), np.concatenate([np.empty(0, np.int64), *places])


def _wider(part: Part, texts: Sequence[str], n_texts: int) -> tuple[Part, NDArray[np.int64]]:
    """Return a part with the words of texts, and the new place of each of its features."""
    old, batch = part.vocabulary, part.cut(texts)
    counts = dict(zip(batch.words, texts_with(batch).tolist(), strict=True))
    new = [word for word, n in counts.items() if n >= FEWEST_TEXTS and word not in old.index]
    words = sorted([*old.words, *new])
    index = {word: place for place, word in enumerate(words)}
    own = np.array([index[word] for word in old.words], dtype=np.int64)
    first, second = np.divmod(old.pairs, max(1, len(old.words)))
    pairs = own[first] * len(words) + own[second] if len(old.pairs) else old.pairs
    idf = np.zeros(len(words) + len(pairs), np.float32)
    places = np.concatenate([own, len(words) + np.arange(len(pairs))])
    idf[places] = old.idf
    for word in new:
        idf[index[word]] = np.log((1 + n_texts) / (1 + counts[word])) + 1
    return replace(part, vocabulary=Vocabulary(words, pairs, idf)), places


def spread_scorer(
    scorer: LinearScorer, places: NDArray[np.int64], size: int, *, n_words: int
) -> LinearScorer:
    """Return a scorer whose features have other places, out of so many, words first."""
    groups = scorer.groups
    if groups is not None:
        groups = replace(groups, weights=_spread_rows(groups.weights, places, size))
    votes = scorer.votes
    if votes is not None:
        texts = _spread_rows(votes.texts, places[: votes.texts.shape[0]], n_words)
        votes = replace(votes, texts=texts)
    weights = _spread_rows(scorer.weights, places, size)
    return replace(scorer, weights=weights, groups=groups, votes=votes)


def spread_memory(memory: TrainingMemory, places: NDArray[np.int64], size: int) -> TrainingMemory:
    """Return the memory of texts whose features have other places, out of so many."""
    from scipy.sparse import csr_matrix

    texts = as_csr(memory.sample.features)
    columns = places[texts.indices].astype(texts.indices.dtype)
    features = csr_matrix((texts.data, columns, texts.indptr), (texts.shape[0], size))
    return replace(memory, sample=LabelledTexts(features, as_csr(memory.sample.gold)))


def _spread_rows(matrix: Any, places: NDArray[np.int64], size: int) -> Any:
    from scipy.sparse import csr_matrix

    matrix = as_csr(matrix)
    lengths = np.zeros(size, dtype=matrix.indptr.dtype)
    lengths[places] = np.diff(matrix.indptr)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(matrix.indptr.dtype)
    return csr_matrix((matrix.data, matrix.indices, bounds), (size, matrix.shape[1]))
