"""Scores of labels without training texts, from their names.

- A label's features are the words and word pairs of its names, and words that differ from one of
  them only in their last letters (`fishery`, `fisheries`), as in any inflected language. Pieces of
  words are not used: similar spelling is too little evidence for such a label.
- Where labels have a hierarchy, the mean text of a label's relatives (its parents, its children and
  their other children) is added to its name: it tells the subject that the name belongs to.
- The calibration comes from the rarest labels that have texts, treated as if they had none: how
  often a name match of a given strength was right gives slope and shift (Platt).
- A label without texts is rarer still. By Good and Turing's estimate all such labels together occur
  as often as all labels with a single text; the shift is lowered accordingly.
- A name that occurs in many training texts, none of which has the label, is evidence against it:
  with E texts expected to have the label and none that has it, its odds are divided by 1 + E (the
  posterior mean of a Poisson rate under a prior of mean and deviation 1).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.label_profiles import label_profiles
from glocal.companions.sparse.platt import BEST_LABELS, fit_scaling
from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels
from glocal.companions.sparse.training_memory import Scaling
from glocal.companions.sparse.vectoriser import PIECES, STEMS, TITLE, Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.log_odds import sigmoid

LIKE_WEIGHT = 0.7  # weight of a word that is only similar to one of the name
ENDING = 3  # last letters in which similar words may differ
BEGINNING = 4  # first letters they must share
RARE_LABELS = 2000
RARE_TEXTS = 5  # most texts of a rare label
CALIBRATION_TEXTS = 8192
CHUNK_CELLS = 4_000_000
FEWEST_HITS = 10  # with fewer, the rare labels are not informative
USUAL_SLOPE = 10.0
TITLE_SHARE = 0.3  # weight of a name in the first line, relative to that of other words there
RELATIVES = 0.16  # length of the relatives' mean text beside a name of length one
RELATIVES_THRESHOLD = 0.02  # smaller values of the mean text are dropped


def words_like(word: str, vocabulary: Vocabulary) -> Iterator[int]:
    """Yield the features of words with the same beginning and another ending."""
    if len(word) < BEGINNING or not word.isalpha():
        return
    stem, words = word[: max(BEGINNING, len(word) - ENDING)], vocabulary.words
    for feature in range(bisect_left(words, stem), len(words)):
        other = words[feature]
        if not other.startswith(stem):
            return
        cut = max(BEGINNING, len(word) - ENDING, len(other) - ENDING)
        if other != word and other[:cut] == word[:cut] and other.isalpha():
            yield feature


def name_features(vectoriser: Vectoriser, names: Sequence[str]) -> Any:
    """Return the features of names and of similar words.

    Returns:
        (F, names) float32 CSC matrix, columns of length one or empty.
    """
    from scipy.sparse import hstack

    parts = [
        part.weight * (TITLE_SHARE if part.name == TITLE else 1.0) * _unit_rows(rows)
        for part, rows in ((part, _part_rows(part, names)) for part in vectoriser.parts)
    ]
    return _unit_rows(hstack(parts, format="csr")).astype(np.float32).T.tocsc()


def _part_rows(part: Part, names: Sequence[str]) -> Any:
    """Return (names, features of the part): IDF of a name's words, and less for similar ones."""
    from scipy.sparse import csr_matrix

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
    like = [list(words_like(word, vocabulary)) for word in batch.words]
    row_of = np.repeat(np.arange(len(names)), batch.lengths)
    lengths = np.array([len(features) for features in like], dtype=np.int64)[batch.codes]
    columns = [like[code] for code in batch.codes]
    flat = np.fromiter((c for found in columns for c in found), np.int64, int(lengths.sum()))
    others = csr_matrix(
        (LIKE_WEIGHT * vocabulary.idf[flat], (np.repeat(row_of, lengths), flat)), shape
    )
    return rows + others


def _unit_rows(matrix: Any) -> Any:
    from scipy.sparse import diags

    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return (diags(1 / np.maximum(length, 1e-12)) @ matrix).tocsr()


def score_unseen(
    scorer: LinearScorer,
    vectoriser: Vectoriser,
    names: Sequence[str],
    features: Any,
    gold: Any,
    *,
    families: Any = None,
    seed: int = 0,
    threads: int = 1,
) -> tuple[LinearScorer, Scaling]:
    """Give labels without a training text the weights of their names and relatives.

    Args:
        scorer: Calibrated scorer of all labels; labels without texts have no weights.
        vectoriser: Turns names into features.
        names: Name of every label, empty for none.
        features: (n, F) CSR matrix of training texts.
        gold: (n, L) CSR matrix of their labels.
        families: (families, L) CSR matrix of the families of labels; None for no hierarchy.
        seed: Random seed of the texts and labels used.
        threads: Number of threads.

    Returns:
        The scorer, and the scaling of name matches; its shift is the bias of a label that is
        expected in no text.
    """
    counts = np.bincount(gold.indices, minlength=gold.shape[1])
    unseen = np.flatnonzero(counts == 0)
    rng = np.random.default_rng([seed, 2])
    texts = np.sort(rng.permutation(features.shape[0])[:CALIBRATION_TEXTS])
    evidence = _Evidence(vectoriser, names, features, gold, families, threads)
    slope, shift = _scaling(evidence, texts, counts, rng=rng)
    # Without evidence a label without texts must not rank above one that has some.
    lowest = min(shift, float(scorer.biases[counts > 0].min(initial=shift)))
    scaling = Scaling(slope, lowest)
    if not len(unseen):
        return scorer, scaling
    from scipy.sparse import csr_matrix

    named, expected = _scored(evidence.of(unseen), Scaling(slope, shift), features[texts])
    expected *= features.shape[0] / len(texts)
    biases = scorer.biases.copy()
    biases[unseen] = lowest - np.log1p(expected)
    entries = named.tocoo()
    added = csr_matrix((entries.data, (entries.row, unseen[entries.col])), scorer.weights.shape)
    weights = (scorer.weights + added).tocsr()
    weights.sort_indices()
    return replace(scorer, weights=weights, biases=biases), scaling


def name_scores(
    vectoriser: Vectoriser, names: Sequence[str], scaling: Scaling, features: Any
) -> tuple[Any, NDArray[np.float64]]:
    """Return the weights of names, and the texts that are expected to have each label by them.

    Args:
        vectoriser: Turns names into features.
        names: Names of labels, empty for none.
        scaling: Scaling of name matches.
        features: (n, F) CSR matrix of texts.

    Returns:
        (F, names) float32 CSR matrix, and (names,) numbers of texts.
    """
    return _scored(name_features(vectoriser, names).tocsr(), scaling, features)


def _scored(own: Any, scaling: Scaling, features: Any) -> tuple[Any, NDArray[np.float64]]:
    """Return the weights of evidence (F, k), and the texts expected to have each label."""
    weights = own * np.float32(scaling.slope)
    scorer = LinearScorer(weights, _constant(scaling.shift, own.shape[1]))
    return weights, _expected_texts(scorer, features)


@dataclass(frozen=True)
class _Evidence:
    """Facts about labels that need none of their own texts; see `score_unseen`."""

    vectoriser: Vectoriser
    names: Sequence[str]
    features: Any
    gold: Any
    families: Any
    threads: int

    def of(self, labels: NDArray[np.int64]) -> Any:
        """Return (F, k) the features of labels' names, and of the texts of their relatives."""
        own = name_features(self.vectoriser, [self.names[label] for label in labels.tolist()])
        if self.families is None or not self.families.shape[0]:
            return own.tocsr()
        return (own + np.float32(RELATIVES) * self._relatives(labels)).tocsr()

    def _relatives(self, labels: NDArray[np.int64]) -> Any:
        """Return (F, k) the mean texts of the relatives of labels, without the labels' own."""
        from scipy.sparse import diags

        counts = np.bincount(self.gold.indices, minlength=self.gold.shape[1])
        each = self.gold @ diags((1 / np.maximum(counts, 1)).astype(np.float32))  # labels alike
        texts = (each @ self.families.T) @ self.families[:, labels]  # (n, k)
        texts = texts - texts.multiply(self.gold[:, labels] > 0)
        return label_profiles(
            self.features, texts.tocsr(), threshold=RELATIVES_THRESHOLD, threads=self.threads
        )


def _scaling(
    evidence: _Evidence,
    texts: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return slope and shift of the evidence, fitted on rare labels with a name and texts."""
    features, gold = evidence.features[texts], evidence.gold[texts]
    usual = USUAL_SLOPE, math.log(0.5 / (features.shape[0] + 1))
    named = np.array([bool(name) for name in evidence.names])
    rare = rng.permutation(np.flatnonzero((counts > 0) & (counts <= RARE_TEXTS) & named))
    rare = np.sort(rare[:RARE_LABELS])
    if not len(rare):
        return usual
    likeness = LinearScorer(evidence.of(rare), _constant(0.0, len(rare)))
    best, scores = top_labels(likeness, features, BEST_LABELS, threads=evidence.threads)
    there = (best >= 0) & (scores > 0)
    rows = np.repeat(np.arange(len(best)), there.sum(axis=1))
    if not len(rows):
        return usual
    hits = np.asarray(gold[:, rare][rows, best[there]]).ravel() > 0
    if hits.sum() < FEWEST_HITS:
        return usual
    slope, shift = fit_scaling(scores[there], hits)
    together = max(0.5, float((counts == 1).sum()))
    # Without any, as for a label added later that is as frequent as one with a single text.
    n_unseen = float((counts == 0).sum()) or together
    return slope, shift + math.log(together / n_unseen / counts[rare].mean())


def _expected_texts(scorer: LinearScorer, features: Any) -> NDArray[np.float64]:
    """Return (L,) the texts expected to have each label by its name, beyond chance."""
    total = np.zeros(scorer.n_labels)
    size = max(1, CHUNK_CELLS // max(1, scorer.n_labels))
    chance = None
    for start in range(0, features.shape[0], size):
        scores = scorer.scores(features[start : start + size]).astype(np.float64)
        if chance is None:  # of a text that is not about the label, as most are not
            chance = sigmoid(np.median(scores, axis=0))
        total += (sigmoid(scores) - chance).sum(axis=0)
    return np.maximum(total, 0.0)


def _constant(value: float, size: int) -> NDArray[np.float32]:
    return np.full(size, value, dtype=np.float32)
