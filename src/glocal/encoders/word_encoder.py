"""Word vectors in the place of an encoder: layer 0, and nothing above it.

- `WordVectorModel` looks like a Hugging Face model to `Encoder`, and `WordTokenizer` like any other
  tokenizer, so that systems, training and the model directory take them as such;
- the vectors are trained along (`encoder.freeze` keeps them);
- one more token than there are vectors, at zero, fills padding and stands for a text without any
  known word.
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

from glocal.encoders.no_encoder import NoTokenizer
from glocal.encoders.static import StaticVectors
from glocal.encoders.tokenizer import TextTokenizer, TokenizerFacts
from glocal.encoders.word_lookup import LOOKUPS, WordLookup

__all__ = ["WORD_VECTORS", "WordTokenizer", "WordVectorModel", "load_tokenizer"]

WORD_VECTORS = "glocal-word-vectors"  # the model type in `encoder/config.json`
_WORD = re.compile(r"\S+")


class WordTokenizer(TextTokenizer):
    """Turns texts into the tokens that have a vector, word by word; has no backend.

    Args:
        lookup: Gives the tokens of a word.
        n_tokens: How many have a vector; the number after the last is padding.
    """

    def __init__(self, lookup: WordLookup, n_tokens: int) -> None:
        self.lookup, self.vocab_size = lookup, n_tokens + 1
        self.facts = TokenizerFacts(pad_id=n_tokens)
        content = f"{lookup.kind} {lookup.fingerprint} {n_tokens}".encode()
        self.fingerprint = hashlib.blake2b(content, digest_size=16).hexdigest()
        self._words = StaticVectors(lookup, np.zeros((n_tokens, 0), dtype=np.float32))

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The first tokens of each text; the blank one where there is none."""
        found = self._words.token_ids(texts, max_length)
        return [ids[:max_length].tolist() or [self.facts.pad_id] for ids in found]

    def encode_with_offsets(
        self, text: str, max_length: int
    ) -> tuple[list[int], list[tuple[int, int]], list[int | None]]:
        """Ids, character spans and word numbers; the blank token has an empty span."""
        words = list(_WORD.finditer(text))[:max_length]
        pieces = self.lookup([word[0] for word in words])
        found: list[tuple[int, tuple[int, int], int | None]] = []
        for number, (word, tokens) in enumerate(zip(words, pieces, strict=True)):
            found += [(token, word.span(), number) for token in tokens]
        found = found[:max_length] or [(self.facts.pad_id, (0, 0), None)]
        return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]

    def save(self, path: Path) -> None:
        """Write the tokenizer or the words beside a path."""
        self.lookup.save(path.parent)

    def facts_mapping(self) -> dict[str, Any]:
        """For the model directory."""
        return {"words": self.lookup.kind, "n_tokens": self.vocab_size - 1}


def load_tokenizer(folder: Path, facts: Mapping[str, Any]) -> TextTokenizer:
    """The tokenizer of a model directory, of any kind.

    Args:
        folder: The model directory.
        facts: From `facts_mapping`.
    """
    if "none" in facts:
        return NoTokenizer()
    if "words" not in facts:
        return TextTokenizer.load(folder, facts)
    n_tokens = int(facts["n_tokens"])
    return WordTokenizer(LOOKUPS[facts["words"]].load(folder, n_tokens), n_tokens)


class WordVectorConfig:
    """What `Encoder` and the model directory ask of a configuration."""

    num_hidden_layers = 0

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size

    def to_dict(self) -> dict[str, Any]:
        """For `config.json`."""
        return {
            "model_type": WORD_VECTORS,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
        }


class WordVectorModel(nn.Module):
    """A vector for each token.

    Args:
        vocab_size: How many tokens.
        hidden_size: Width of the vectors.
    """

    supports_gradient_checkpointing = False

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.config = WordVectorConfig(vocab_size, hidden_size)
        self.table = nn.Embedding(vocab_size, hidden_size)

    @classmethod
    def of(cls, vectors: StaticVectors) -> tuple[WordVectorModel, WordTokenizer]:
        """A model that starts at given vectors, and its tokenizer."""
        matrix = torch.from_numpy(vectors.token_matrix())
        model = cls(len(matrix) + 1, matrix.shape[1])
        with torch.no_grad():
            model.table.weight.copy_(torch.cat([matrix, matrix.new_zeros(1, matrix.shape[1])]))
        return model, WordTokenizer(vectors.lookup, len(matrix))

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Hidden states as a Hugging Face model gives them, of layer 0 alone."""
        return SimpleNamespace(hidden_states=(self.table(input_ids),))
