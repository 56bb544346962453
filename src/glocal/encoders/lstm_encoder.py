"""A bidirectional LSTM over word vectors, the encoder of AttentionXML; needs no pretrained model.

- Layer 0 are the word vectors, layer 1 (`last`) the LSTM's states of both directions.
- The backward direction reads each text from its own last word: the words of a text are reversed in
  place, and padding stays at the end, so that padding changes nothing and no shape depends on the
  data.
- Vectors of any source are scaled alike at the start; those of transformers are small, and an LSTM
  that reads them hardly leaves zero.
- It computes in fp32 whatever the run's precision: an error in an LSTM's state goes on to the end
  of the text.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.encoders.static import StaticVectors
from glocal.encoders.word_encoder import WordVectorModel
from glocal.encoders.word_tokenizer import WordTokenizer

LSTM = "glocal-bilstm"  # the model type in `encoder/config.json`
_SPREAD = 0.5  # standard deviation of the word vectors at the start: about that of GloVe's


class _Config:
    """The part of a Hugging Face configuration that `Encoder` and the model directory read."""

    num_hidden_layers = 1

    def __init__(self, vocab_size: int, vector_size: int, lstm_size: int, dropout: float) -> None:
        self.model_type, self.vocab_size, self.vector_size = LSTM, vocab_size, vector_size
        self.lstm_size, self.hidden_size, self.dropout = lstm_size, 2 * lstm_size, dropout

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class BiLstmModel(nn.Module):
    """Word vectors and one LSTM for each direction.

    Args:
        vocab_size: Number of tokens.
        vector_size: Width of the word vectors.
        lstm_size: Width of each direction's states.
        dropout: Dropout on the word vectors.
    """

    supports_gradient_checkpointing = False

    def __init__(self, vocab_size: int, vector_size: int, lstm_size: int, dropout: float) -> None:
        super().__init__()
        self.config = _Config(vocab_size, vector_size, lstm_size, dropout)
        self.table = nn.Embedding(vocab_size, vector_size)
        self.directions = nn.ModuleDict(
            {name: nn.LSTM(vector_size, lstm_size) for name in ("forwards", "backwards")}
        )

    @classmethod
    def of(
        cls, vectors: StaticVectors, lstm_size: int, dropout: float
    ) -> tuple[BiLstmModel, WordTokenizer]:
        """Build a model that starts at given vectors, and its tokenizer."""
        words, tokenizer = WordVectorModel.of(vectors)
        size = words.table.embedding_dim
        model = cls(words.table.num_embeddings, size, lstm_size, dropout)
        model.table = words.table
        with torch.no_grad():
            spread = words.table.weight.square().mean().sqrt().clamp(min=1e-6)
            words.table.weight.mul_(_SPREAD / spread)
        return model, tokenizer

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SimpleNamespace:
        """Return the hidden states of both layers as a Hugging Face model does."""
        words = self.table(input_ids)  # (B, T, D)
        dropped = functional.dropout(words, self.config.dropout, self.training)
        back = _reversal(input_ids, attention_mask)
        with torch.autocast(input_ids.device.type, enabled=False):
            dropped = dropped.float()
            forwards = self._read("forwards", dropped)
            backwards = _reorder(self._read("backwards", _reorder(dropped, back)), back)
        states = torch.cat([forwards, backwards], -1).to(words.dtype)  # (B, T, 2h)
        return SimpleNamespace(hidden_states=(words, states))

    def _read(self, direction: str, words: Tensor) -> Tensor:
        """Return the states of one direction, (B, T, h).

        The weights are passed by hand: a module of PyTorch keeps a list of its own, which does not
        notice that `functional_call` has replaced them.
        """
        module: Any = self.directions[direction]
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(module, name).float() for name in names]
        start = words.new_zeros(1, len(words), self.config.lstm_size)
        with warnings.catch_warnings():  # about the place of weights in memory
            warnings.filterwarnings("ignore", message="RNN module weights")
            states: Tensor = torch.lstm(
                words.transpose(0, 1),
                (start, start),
                weights,
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=self.training,
                bidirectional=False,
                batch_first=False,
            )[0]
        return states.transpose(0, 1)


def _reversal(input_ids: Tensor, mask: Tensor | None) -> Tensor:
    """Return places (B, T) that reverse the tokens of each text and leave padding in place."""
    length = input_ids.shape[1]
    places = torch.arange(length, device=input_ids.device).expand_as(input_ids)
    if mask is None:
        return places.flip(1)
    lengths = mask.long().sum(1, keepdim=True)
    return torch.where(places < lengths, lengths - 1 - places, places)


def _reorder(states: Tensor, places: Tensor) -> Tensor:
    return states.gather(1, places.unsqueeze(-1).expand_as(states))
