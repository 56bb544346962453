"""No encoder at all (`encoder.name = "none"`): for models whose experts read no hidden state.

To systems, training and the model directory it looks like an encoder with nothing to it: every text
is one token, every token the same vector, and there is no weight to train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from glocal.config.settings import NO_ENCODER
from glocal.encoders.tokenizer import TextTokenizer, TokenizerFacts

__all__ = ["NoEncoderModel", "NoTokenizer"]


class NoTokenizer(TextTokenizer):
    """One token for any text."""

    def __init__(self) -> None:
        self.facts, self.vocab_size, self.fingerprint = TokenizerFacts(pad_id=0), 1, NO_ENCODER

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """A token each."""
        return [[0]] * len(texts)

    def encode_with_offsets(
        self, text: str, max_length: int
    ) -> tuple[list[int], list[tuple[int, int]], list[int | None]]:
        """The token stands for no word."""
        return [0], [(0, 0)], [None]

    def save(self, path: Path) -> None:
        """There is nothing to write."""

    def facts_mapping(self) -> dict[str, Any]:
        """For the model directory."""
        return {"none": True}


class _Config:
    num_hidden_layers, hidden_size = 0, 1

    def to_dict(self) -> Mapping[str, Any]:
        return {"model_type": NO_ENCODER}


class NoEncoderModel(nn.Module):
    """Layer 0 alone, at zero."""

    supports_gradient_checkpointing = False

    def __init__(self) -> None:
        super().__init__()
        self.config = _Config()

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Hidden states as a Hugging Face model gives them."""
        return SimpleNamespace(hidden_states=(input_ids.new_zeros(*input_ids.shape, 1).float(),))
