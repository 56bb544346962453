"""Stand-ins for a transformer: word vectors as the only layer, or no encoder at all.

- The models look like Hugging Face models to `Encoder`, so that systems, training and the model
  directory treat them as such. Their tokenizers are in `word_tokenizer.py`.
- Word vectors are layer 0; they are trained with the system unless `encoder.freeze` is set. One
  more token than there are vectors, at zero, is padding and stands for a text without known words.
- Without an encoder (`encoder.name = "none"`), for experts that read no hidden state, every text is
  one token, every token the same vector, and there is no weight to train.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from glocal.config.settings import NO_ENCODER
from glocal.encoders.static import StaticVectors
from glocal.encoders.word_tokenizer import WordTokenizer

WORD_VECTORS = "glocal-word-vectors"  # the model type in `encoder/config.json`


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
