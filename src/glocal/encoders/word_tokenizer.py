"""Tokenizers of encoders that are no transformers, and reading any tokenizer of a model directory.

Nothing here needs torch; a model of words alone needs no other tokenizer than `NoTokenizer`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.config.settings import NO_ENCODER
from glocal.encoders.tokenizer import TextTokenizer, TokenizerFacts

if TYPE_CHECKING:
    from glocal.encoders.word_lookup import WordLookup

_WORD = re.compile(r"\S+")


class WordTokenizer(TextTokenizer):
    """Turns texts into the tokens that have a vector, word by word; has no backend.

    Args:
        lookup: Returns the tokens of a word.
        n_tokens: Number of tokens with a vector; the id after the last is padding.
    """

    def __init__(self, lookup: WordLookup, n_tokens: int) -> None:
        from glocal.encoders.static import StaticVectors

        self.lookup, self.vocab_size = lookup, n_tokens + 1
        self.facts, self.id_bound = TokenizerFacts(pad_id=n_tokens), n_tokens + 1
        content = f"{lookup.kind} {lookup.fingerprint} {n_tokens}".encode()
        self.fingerprint = hashlib.blake2b(content, digest_size=16).hexdigest()
        self._words = StaticVectors(lookup, np.zeros((n_tokens, 0), dtype=np.float32))

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the first tokens of each text; padding for a text without known words."""
        found = self._words.token_ids(texts, max_length)
        return [ids[:max_length].tolist() or [self.facts.pad_id] for ids in found]

    def encode_with_offsets(
        self, text: str, max_length: int
    ) -> tuple[list[int], list[tuple[int, int]], list[int | None]]:
        """Return ids, character spans and word numbers; padding has an empty span."""
        words = list(_WORD.finditer(text))[:max_length]
        pieces = self.lookup([word[0] for word in words])
        found: list[tuple[int, tuple[int, int], int | None]] = []
        for number, (word, tokens) in enumerate(zip(words, pieces, strict=True)):
            found += [(token, word.span(), number) for token in tokens]
        found = found[:max_length] or [(self.facts.pad_id, (0, 0), None)]
        return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]

    def save(self, path: Path) -> None:
        """Write the tokenizer or the words into the folder of a path."""
        self.lookup.save(path.parent)

    def facts_mapping(self) -> dict[str, Any]:
        """Return the facts for the model directory."""
        return {"words": self.lookup.kind, "n_tokens": self.vocab_size - 1}


def load_tokenizer(folder: Path, facts: Mapping[str, Any]) -> TextTokenizer:
    """Read the tokenizer of a model directory, of any kind.

    Args:
        folder: The model directory.
        facts: The tokenizer's `facts_mapping`.
    """
    if "none" in facts:
        return NoTokenizer()
    if "words" not in facts:
        return TextTokenizer.load(folder, facts)
    from glocal.encoders.word_lookup import LOOKUPS

    n_tokens = int(facts["n_tokens"])
    return WordTokenizer(LOOKUPS[facts["words"]].load(folder, n_tokens), n_tokens)


class NoTokenizer(TextTokenizer):
    """Turns any text into one token."""

    def __init__(self) -> None:
        self.facts, self.vocab_size, self.fingerprint = TokenizerFacts(pad_id=0), 1, NO_ENCODER
        self.id_bound = 1

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return one token per text."""
        return [[0]] * len(texts)

    def encode_with_offsets(
        self, text: str, max_length: int
    ) -> tuple[list[int], list[tuple[int, int]], list[int | None]]:
        """Return one token that stands for no word."""
        return [0], [(0, 0)], [None]

    def save(self, path: Path) -> None:
        """Write nothing: there is nothing to store."""

    def facts_mapping(self) -> dict[str, Any]:
        """Return the facts for the model directory."""
        return {"none": True}
