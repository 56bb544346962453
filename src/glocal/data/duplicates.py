"""Exact duplicates and near-duplicates of texts.

A near-duplicate is a text with the same first 1,500 characters once digits are masked and case is
folded: a yearly regulation that differs in its dates and numbers only.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools
from glocal.data.corpus import Corpus

PREFIX_CHARACTERS = 1500
DIGIT = re.compile(r"\d")
KEY_BYTES = 16


def exact_key(text: str) -> bytes:
    """Return a hash that is equal for equal texts."""
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def near_duplicate_key(text: str) -> bytes:
    """Return a hash that is equal for near-duplicates."""
    return exact_key(DIGIT.sub("0", text[:PREFIX_CHARACTERS]).lower())


def text_keys(corpus: Corpus, *, near: bool) -> NDArray[np.void]:
    """Return the keys of all texts of a corpus, in order, as an array of opaque 16-byte items."""
    key = near_duplicate_key if near else exact_key
    digests = b"".join(key(text) for texts in corpus.iter_texts() for text in texts)
    return np.frombuffer(digests, dtype=np.dtype((np.void, KEY_BYTES)))


def near_duplicate_mask(corpus: Corpus, train: Corpus) -> Bools:
    """Return whether each document of a corpus is a near-duplicate of a training document.

    Args:
        corpus: The documents to check.
        train: The training documents.
    """
    return np.isin(text_keys(corpus, near=True), text_keys(train, near=True))
