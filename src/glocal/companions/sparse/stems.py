"""Stems of words in a language, by Snowball's algorithms."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from glocal.companions.sparse.words import WordBatch
from glocal.errors import require

_LOCAL = threading.local()  # a stemmer must not be shared between threads


def stems_of(words: list[str], language: str) -> list[str]:
    """Return the stem of each word.

    Raises:
        MissingExtraError: The stemmer is not installed.
    """
    stemmers: dict[str, Any] = _LOCAL.__dict__.setdefault("stemmers", {})
    if language not in stemmers:
        package: Any = require("Stemmer", extra="stems", purpose=f"stems of {language} words")
        stemmers[language] = package.Stemmer(language)
    found: list[str] = stemmers[language].stemWords(words)
    return found


def stemmed(batch: WordBatch, language: str) -> WordBatch:
    """Return the stems of a batch of texts in place of their words."""
    distinct: dict[str, int] = {}
    stems = stems_of(batch.words, language)
    place = np.array([distinct.setdefault(stem, len(distinct)) for stem in stems], dtype=np.int32)
    codes = place[batch.codes] if len(place) else batch.codes
    return WordBatch(batch.lengths, codes, list(distinct))
