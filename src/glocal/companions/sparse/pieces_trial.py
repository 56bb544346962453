"""Whether pieces of words help, tried on a part of the training texts.

Languages that join words (`Fischereipolitik`) or inflect them have many words that are rare and
alike; their pieces are not. Two models of mean texts, with pieces and without, tag texts that
neither has seen: a few seconds, where two whole models would take minutes. It is tried only where
many words are long, as in such languages (German 5% of 15 letters or more, English below 1%). Texts
of at most `SHORT_TEXTS` words have pieces in any case, long ones none, since pieces of long texts
are many and such texts repeat what they are about in other words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from glocal.companions.sparse.label_profiles import label_profiles
from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels
from glocal.companions.sparse.vectoriser import SHORT_TEXTS, Vectoriser
from glocal.companions.sparse.words import split_words
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus

LONG_TEXTS = 300  # mean words from which pieces are not tried
_LONG_WORD, _LONG_WORDS = 15, 0.015  # letters of a long word; share of such words
_TEXTS, _FEWEST = 1250, 500
_HELD_OUT = 5  # every so many-th text is tagged, the others train
_COUNTED = 500
_K = 5
_GAIN = 1.05  # pieces must find so many times the labels that words find


def with_decided_pieces(
    config: SparseConfig, train: Corpus, gold: Any, *, seed: int
) -> SparseConfig:
    """Return the settings with pieces on or off where a trial has decided it.

    Args:
        config: The settings.
        train: The training texts.
        gold: (n, L) CSR matrix of their labels.
        seed: Random seed of the texts tried.
    """
    if config.pieces != "auto" or len(train) < _FEWEST or not _worth_trying(train):
        return config
    rows = np.random.default_rng([seed, 5]).permutation(len(train))[:_TEXTS]
    found = {
        pieces: _found(replace(config, pieces=pieces, pairs=False), train, gold, rows)
        for pieces in ("off", "on")
    }
    return replace(config, pieces="on" if found["on"] > _GAIN * found["off"] else "off")


def _worth_trying(train: Corpus) -> bool:
    """Return whether texts are neither short nor long, and many of their words are long."""
    places = np.linspace(0, len(train) - 1, min(len(train), _COUNTED)).astype(np.int64)
    batch = split_words(list(train.take(places).texts()))
    if not SHORT_TEXTS < batch.lengths.mean() <= LONG_TEXTS:
        return False
    long = np.array([word.isalpha() and len(word) >= _LONG_WORD for word in batch.words])
    return bool(long[batch.codes].mean() >= _LONG_WORDS)


def _found(config: SparseConfig, train: Corpus, gold: Any, rows: np.ndarray) -> int:
    """Return how many labels of held-out texts are among the best by mean texts."""
    held = np.sort(rows[::_HELD_OUT])
    kept = np.setdiff1d(rows, held)
    vectoriser, features = Vectoriser.fit(train.take(kept), config)
    profiles = label_profiles(features, gold[kept], threshold=0.01, threads=1)
    scorer = LinearScorer(profiles, np.zeros(gold.shape[1], np.float32))
    best, _ = top_labels(scorer, vectoriser.transform(train.take(held).texts()), _K)
    row = np.repeat(np.arange(len(held)), best.shape[1])
    chosen = best.ravel() >= 0
    return int(gold[held][row[chosen], best.ravel()[chosen]].sum())
