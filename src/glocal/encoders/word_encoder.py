"""Stand-ins for a transformer: word vectors as the only layer, or no encoder at all.

- The models look like Hugging Face models to `Encoder`, and the tokenizers like any other, so that
  systems, training and the model directory treat them as such.
- Word vectors are layer 0; they are trained with the system unless `encoder.freeze` is set. One
  more token than there are vectors, at zero, is padding and stands for a text without known words.
- Without an encoder (`encoder.name = "none"`), for experts that read no hidden state, every text is
  one token, every token the same vector, and there is no weight to train.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.config.settings import NO_ENCODER
from glocal.encoders.static import StaticVectors
from glocal.encoders.tokenizer import TextTokenizer, TokenizerFacts
from glocal.encoders.word_lookup import LOOKUPS, WordLookup

WORD_VECTORS = "glocal-word-vectors"  # the model type in `encoder/config.json`
_WORD = re.compile(r"\S+")


class WordTokenizer(TextTokenizer):
    """Turns texts into the tokens that have a vector, word by word; has no backend.

    Args:
        lookup: Returns the tokens of a word.
        n_tokens: Number of tokens with a vector; the id after the last is padding.
    """

    def __init__(self, lookup: WordLookup, n_tokens: int) -> None:
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


class _Config:
    """The part of a Hugging Face configuration that `Encoder` and the model directory read."""

    num_hidden_layers = 0

    def __init__(self, model_type: str, vocab_size: int, hidden_size: int) -> None:
        self.model_type, self.vocab_size, self.hidden_size = model_type, vocab_size, hidden_size

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class WordVectorModel(nn.Module):
    """A vector for each token.

    Args:
        vocab_size: Number of tokens.
        hidden_size: Width of the vectors.
    """

    supports_gradient_checkpointing = False

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.config = _Config(WORD_VECTORS, vocab_size, hidden_size)
        self.table = nn.Embedding(vocab_size, hidden_size)

    @classmethod
    def of(cls, vectors: StaticVectors) -> tuple[WordVectorModel, WordTokenizer]:
        """Build a model that starts at given vectors, and its tokenizer."""
        matrix = torch.from_numpy(vectors.matrix)
        model = cls(len(matrix) + 1, matrix.shape[1])
        with torch.no_grad():
            model.table.weight.copy_(torch.cat([matrix, matrix.new_zeros(1, matrix.shape[1])]))
        return model, WordTokenizer(vectors.lookup, len(matrix))

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Return the hidden states of layer 0 as a Hugging Face model does."""
        return SimpleNamespace(hidden_states=(self.table(input_ids),))


class NoEncoderModel(nn.Module):
    """Layer 0 alone, at zero."""

    supports_gradient_checkpointing = False

    def __init__(self) -> None:
        super().__init__()
        self.config = _Config(NO_ENCODER, vocab_size=1, hidden_size=1)

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Return the hidden states of layer 0 as a Hugging Face model does."""
        return SimpleNamespace(hidden_states=(input_ids.new_zeros(*input_ids.shape, 1).float(),))
