"""The facts about an encoder that the rules of a recipe depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncoderFacts:
    """An encoder as its configuration describes it; no weights are loaded to find this out.

    `encoders.read_facts` makes them. The defaults are those of word vectors in place of an encoder.

    Attributes:
        n_layers: Layers above the embeddings, before any are cut off.
        hidden_size: Width of a token's vector.
        max_tokens: Tokens it can read at once; None where there is no limit.
        special_tokens: Special tokens its tokenizer adds to a text.
        can_be_cut: Whether its layers can be found and cut off above the highest one in use.
        can_checkpoint: Whether it supports gradient checkpointing.
    """

    n_layers: int
    hidden_size: int
    max_tokens: int | None = None
    special_tokens: int = 0
    can_be_cut: bool = True
    can_checkpoint: bool = False
