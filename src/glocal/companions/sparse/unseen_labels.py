"""Scores of labels without training texts, from their names.

- A label is scored by the words and word pairs of its names and by words like them
  (`name_features`), times the share of its name that is in the text (`name_matcher`).
- Where labels have a hierarchy, the mean text of a label's relatives (its parents, its children and
  their other children) is added: it tells the subject that the name belongs to.
- The calibration repeats the situation: labels that one half of the training texts does not have
  are looked for in the other half. How often a name match of a given strength is right there gives
  slope and shift (Platt); labels that the other half does not have either are always wrong.
- A name that occurs in many training texts, none of which has the label, is evidence against it:
  with E texts expected to have the label and none that has it, its odds are divided by 1 + E (the
  posterior mean of a Poisson rate under a prior of mean and deviation 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags

from glocal.companions.sparse.label_profiles import label_profiles
from glocal.companions.sparse.name_features import name_matcher
from glocal.companions.sparse.new_words import spread_scorer, spread_texts, with_names
from glocal.companions.sparse.platt import BEST_LABELS, fit_scaling
from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels
from glocal.companions.sparse.training_memory import Scaling
from glocal.companions.sparse.vectoriser import Vectoriser
from glocal.log_odds import sigmoid
from glocal.vocabulary.label_families import label_families
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_text import all_names

TRIED_LABELS = 4000  # labels that the calibration looks for
TRIED_TEXTS = 2048  # texts it looks in, of those that have one of these labels, and of others
REST_WEIGHT = 0.01  # weight of pairs of texts and labels without evidence
EXPECTED_TEXTS = 4096  # texts in which labels are expected by their names
EXPECTED_CELLS = 500_000_000  # of texts and labels, at most
CHUNK_CELLS = 4_000_000
FEWEST_HITS = 10  # with fewer, the labels tried are not informative
USUAL_SLOPE = 3.0
RELATIVES = 0.08  # length of the relatives' mean text beside a name of length one
RELATIVES_THRESHOLD = 0.02  # smaller values of the mean text are dropped


def score_by_names(
    scorer: LinearScorer,
    vectoriser: Vectoriser,
    labels: LabelSpace,
    features: Any,
    gold: Any,
    *,
    relatives: bool = True,
    seed: int = 0,
    threads: int = 1,
) -> tuple[Vectoriser, LinearScorer, Scaling]:
    """Give labels without a training text the scores of their names and relatives.

    Args:
        scorer: Calibrated scorer of all labels; labels without texts have no weights.
        vectoriser: Turns names into features.
        labels: The labels, their names and hierarchy.
        features: (n, F) CSR matrix of training texts.
        gold: (n, L) CSR matrix of their labels.
        relatives: Whether the texts of relatives count.
        seed: Random seed of the texts and labels used.
        threads: Number of threads.

    Returns:
        The vectoriser with the words of their names, the scorer, and the scaling of name matches;
        its shift is the bias of a label that is expected in no text.
    """
    names = all_names(labels)
    counts = np.bincount(gold.indices, minlength=gold.shape[1])
    unseen = np.flatnonzero(counts == 0)
    flat = (name for label in unseen.tolist() for name in names[label])
    vectoriser, places = with_names(vectoriser, flat, n_texts=features.shape[0])
    size = vectoriser.n_features
    scorer = spread_scorer(scorer, places, size, n_words=vectoriser.n_words)
    features = spread_texts(features, places, size)
    rng = np.random.default_rng([seed, 2])
    families = label_families(labels) if relatives else None
    evidence = _Evidence(vectoriser, names, features, gold, families, threads)
    scaling = _scaling(evidence, rng=rng)
    if not len(unseen):
        return vectoriser, scorer, scaling
    own = _scaled(evidence.of(unseen), scaling)
    biases = scorer.biases.copy()
    biases[unseen] = scaling.shift - np.log1p(_expected_texts(own, features, rng=rng))
    matcher = own.names and replace(own.names, labels=unseen[own.names.labels])
    if matcher and scorer.names:  # of labels with training texts
        matcher = scorer.names.joined(matcher, offset=0).in_order()
    return vectoriser, replace(scorer, biases=biases, names=matcher), scaling


def name_scorer(
    vectoriser: Vectoriser,
    names: Sequence[Sequence[str]],
    scaling: Scaling,
    features: Any,
    *,
    n_texts: int,
) -> LinearScorer:
    """Return the scorer of labels by their names alone.

    Args:
        vectoriser: Turns names into features.
        names: All names of each label.
        scaling: Scaling of name matches.
        features: (n, F) CSR matrix of training texts, none of which has the labels.
        n_texts: Number of texts they are a sample of.
    """
    own = _scaled(_by_names(vectoriser, names), scaling)
    expected = _expected_texts(own, features, rng=np.random.default_rng([n_texts, 2]))
    expected *= n_texts / max(1, features.shape[0])
    return replace(own, biases=(scaling.shift - np.log1p(expected)).astype(np.float32))


def _by_names(vectoriser: Vectoriser, names: Sequence[Sequence[str]]) -> LinearScorer:
    nothing = csr_matrix((vectoriser.n_features, len(names)), dtype=np.float32)
    zeros = np.zeros(len(names), np.float32)
    return LinearScorer(nothing, zeros, names=name_matcher(vectoriser, names))


def _scaled(scorer: LinearScorer, scaling: Scaling) -> LinearScorer:
    """Return the scorer of evidence as log-odds."""
    matcher = scorer.names
    return replace(
        scorer,
        biases=np.full(scorer.n_labels, scaling.shift, np.float32),
        names=matcher and replace(matcher, slopes=matcher.slopes * np.float32(scaling.slope)),
    )


@dataclass(frozen=True)
class _Evidence:
    """Facts about labels that need none of their own texts; see `score_by_names`."""

    vectoriser: Vectoriser
    names: Sequence[Sequence[str]]
    features: Any
    gold: Any
    families: Any
    threads: int

    def of(self, labels: NDArray[np.int64]) -> LinearScorer:
        """Return the scorer of labels by their names and the texts of their relatives."""
        own = _by_names(self.vectoriser, [self.names[label] for label in labels.tolist()])
        if own.names is None or self.families is None or not self.families.shape[0]:
            return own
        texts = self._relatives(labels[own.names.labels]) * np.float32(RELATIVES)
        return replace(own, names=replace(own.names, relatives=texts.tocsr()))

    def taken(self, texts: NDArray[np.int64]) -> _Evidence:
        """Return what is known by some of the texts alone."""
        return replace(self, features=self.features[texts], gold=self.gold[texts])

    def _relatives(self, labels: NDArray[np.int64]) -> Any:
        """Return (F, k) the mean texts of the relatives of labels, without the labels' own."""
        counts = np.bincount(self.gold.indices, minlength=self.gold.shape[1])
        each = self.gold @ diags((1 / np.maximum(counts, 1)).astype(np.float32))  # labels alike
        texts = (each @ self.families.T) @ self.families[:, labels]  # (n, k)
        texts = texts - texts.multiply(self.gold[:, labels] > 0)
        return label_profiles(
            self.features, texts.tocsr(), threshold=RELATIVES_THRESHOLD, threads=self.threads
        )


def _scaling(evidence: _Evidence, *, rng: np.random.Generator) -> Scaling:
    """Return slope and shift of the evidence, fitted on labels that half of the texts lack."""
    n_texts = evidence.features.shape[0]
    usual = Scaling(USUAL_SLOPE, math.log(0.5 / (n_texts + 1)))
    order = rng.permutation(n_texts)
    known = evidence.taken(np.sort(order[: n_texts // 2]))
    others = np.sort(order[n_texts // 2 :])
    named = np.array([bool(names) for names in evidence.names])
    seen = np.bincount(known.gold.indices, minlength=known.gold.shape[1]) > 0
    tried = np.sort(rng.permutation(np.flatnonzero(named & ~seen))[:TRIED_LABELS])
    if not len(tried):
        return usual
    scorer = known.of(tried)
    gold = evidence.gold[others][:, tried].tocsr()
    rows, counts = _texts_to_try(gold, rng=rng)
    texts = evidence.features[others[rows]]
    best, scores = top_labels(scorer, texts, BEST_LABELS, threads=evidence.threads)
    there = (best >= 0) & (scores > 0)
    pairs = np.repeat(np.arange(len(rows)), there.sum(axis=1))
    if not len(pairs):
        return usual
    hits = np.asarray(gold[rows[pairs], best[there]]).ravel() > 0
    if hits.sum() < FEWEST_HITS:
        return usual
    # All other pairs have hardly any evidence; they are two more, with and without the label, and
    # count little: they only tell slope and shift apart where all evidence is alike.
    with_label = counts @ np.diff(gold.indptr)[rows]
    found = counts[pairs] @ hits
    rest = max(0.0, with_label - found), counts.sum() * len(tried) - counts[pairs].sum()
    values, labels = np.append(scores[there], [0, 0]), np.append(hits, [True, False])
    counts = np.append(counts[pairs], np.multiply(rest, REST_WEIGHT))
    own = _scaled(scorer, Scaling(*fit_scaling(values, labels, counts=counts)))
    expected = _expected_texts(own, known.features, rng=rng)
    offsets = np.append(-np.log1p(expected)[best[there]], [0, 0])
    return Scaling(*fit_scaling(values, labels, offsets=offsets, counts=counts))


def _texts_to_try(
    gold: Any, *, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return texts with labels and texts without, and how many each of them stands for."""
    has = np.diff(gold.indptr) > 0
    rows, counts = [], []
    for some in (np.flatnonzero(has), np.flatnonzero(~has)):
        chosen = np.sort(rng.permutation(some)[:TRIED_TEXTS])
        rows.append(chosen)
        counts.append(np.full(len(chosen), len(some) / max(1, len(chosen))))
    return np.concatenate(rows), np.concatenate(counts)


def _expected_texts(
    scorer: LinearScorer, features: Any, *, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return (L,) the texts expected to have each label by its name, beyond chance."""
    most = min(EXPECTED_TEXTS, max(1, EXPECTED_CELLS // max(1, scorer.n_labels)))
    texts = features[np.sort(rng.permutation(features.shape[0])[:most])]
    total = np.zeros(scorer.n_labels)
    size = max(1, CHUNK_CELLS // max(1, scorer.n_labels))
    chance = None
    for start in range(0, texts.shape[0], size):
        scores = scorer.scores(texts[start : start + size]).astype(np.float64)
        if chance is None:  # of a text that is not about the label, as most are not
            chance = sigmoid(np.median(scores, axis=0))
        total += (sigmoid(scores) - chance).sum(axis=0)
    total *= features.shape[0] / max(1, texts.shape[0])
    return np.maximum(total, 0.0)
