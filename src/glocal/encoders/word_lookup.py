"""Lookups of the tokens of a word: an encoder's word pieces, or one entry of a vocabulary.

Tokens are rows of a matrix of vectors; words and pieces without a row are skipped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.encoders.tokenizer import read_backend

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORD = re.compile(r"\w+")
EDGE = re.compile(r"^\W+|\W+$")
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
TOKENIZER_FILE, WORDS_FILE = "tokenizer.json", "words.parquet"


class EncoderLookup:
    """Looks up a word as the pieces of an encoder's tokenizer.

    Args:
        backend: The tokenizer.
        n_tokens: Number of tokens with a vector; higher ids have none.
    """

    kind: ClassVar[str] = "encoder"

    def __init__(self, backend: Tokenizer, n_tokens: int) -> None:
        # A copy, as the truncation of the encoder's own tokenizer changes while it is used.
        from tokenizers import Tokenizer

        self._backend = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        unknown = {self._backend.token_to_id(token) for token in UNKNOWN_TOKENS}
        self._n_tokens, self._unknown = n_tokens, unknown
        content = f"{n_tokens} {self._backend.to_str()}".encode()
        self.fingerprint = hashlib.blake2b(content, digest_size=16).hexdigest()

    def __call__(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the pieces of each word as inside a text, after a space."""
        spaced = [f" {word}" for word in words]
        encodings = self._backend.encode_batch_fast(spaced, add_special_tokens=False)
        return [
            tuple(id_ for id_ in encoding.ids if id_ < self._n_tokens and id_ not in self._unknown)
            for encoding in encodings
        ]

    def save(self, folder: Path) -> None:
        """Write the tokenizer."""
        (folder / TOKENIZER_FILE).write_text(self._backend.to_str(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, n_tokens: int) -> Self:
        """Read the tokenizer."""
        return cls(read_backend(folder / TOKENIZER_FILE), n_tokens)


class VocabularyLookup:
    """Looks up a word as an entry of a vocabulary.

    Forms are tried in this order: as written, without surrounding punctuation, in lower case; then
    the parts of it that are words (`state-owned` as `state` and `owned`).

    Args:
        vocabulary: Distinct words; the position of a word is its token.
    """

    kind: ClassVar[str] = "vocabulary"

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = list(vocabulary)
        self._tokens = {word: token for token, word in enumerate(self.vocabulary)}
        content = "\n".join(self.vocabulary).encode()
        self.fingerprint = hashlib.blake2b(content, digest_size=16).hexdigest()

    def __call__(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the tokens of each word."""
        return [self._find(word) for word in words]

    def _find(self, word: str) -> tuple[int, ...]:
        known, bare = self._tokens, EDGE.sub("", word)
        for form in (word, bare, bare.lower()):
            if form in known:
                return (known[form],)
        forms = ((part, part.lower()) for part in WORD.findall(bare))
        found = (known.get(part, known.get(lower)) for part, lower in forms)
        return tuple(token for token in found if token is not None)

    def save(self, folder: Path) -> None:
        """Write the vocabulary."""
        table = pa.table({"word": pa.array(self.vocabulary, pa.string())})
        pq.write_table(table, folder / WORDS_FILE, compression="zstd")

    @classmethod
    def load(cls, folder: Path, n_tokens: int) -> Self:
        """Read the vocabulary."""
        words = pq.ParquetFile(folder / WORDS_FILE).read().column("word").to_pylist()
        if len(words) != n_tokens:
            raise ValueError(f"{len(words)} words but {n_tokens} vectors")
        return cls(words)


# Each has a `fingerprint`, which changes whenever the tokens of some word do.
WordLookup = EncoderLookup | VocabularyLookup
LOOKUPS: dict[str, type[EncoderLookup] | type[VocabularyLookup]] = {
    lookup.kind: lookup for lookup in (EncoderLookup, VocabularyLookup)
}


def plain_words(text: str, max_words: int) -> list[str]:
    """Return the first words of a text in lower case, split at punctuation."""
    words = text.split(None, max_words)[:max_words]
    return [part for word in words for part in WORD.findall(word.lower())]


def word_forms(word: str) -> set[str]:
    """Return every form that `VocabularyLookup` tries for a word or its parts."""
    bare = EDGE.sub("", word)
    parts = WORD.findall(bare)
    return {word, bare, bare.lower(), *parts, *(part.lower() for part in parts)}
