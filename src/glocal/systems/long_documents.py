"""How the encoder reads the tokens of a long document beyond its window."""

from __future__ import annotations

from collections.abc import Sequence

from glocal.config import Recipe
from glocal.config.expert_names import ExpertSpec
from glocal.encoders.encoder import LongDocuments
from glocal.encoders.tokenizer import TextTokenizer


def long_documents(
    recipe: Recipe, experts: Sequence[ExpertSpec], tokenizer: TextTokenizer
) -> LongDocuments | None:
    """Return how tokens beyond `max_length` are read; None where they are cut off.

    Args:
        recipe: The settings.
        experts: The experts with the layers they read.
        tokenizer: Knows which special tokens a chunk needs.
    """
    by_chunks, chunking = recipe.document.reads == "chunks", tokenizer.chunking(recipe.encoder)
    if chunking is None:
        return None
    readers = ("A", "D") if by_chunks else ("A",)
    layers = {layer for spec in experts if spec.kind in readers for layer in spec.layers}
    return LongDocuments(chunking, tuple(sorted(layers)), mean_document=by_chunks)
