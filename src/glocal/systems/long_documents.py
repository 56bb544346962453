"""How a recipe's long documents are read, and what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence

from glocal.config import Recipe
from glocal.config.expert_names import ExpertSpec
from glocal.data.chunks import Chunking
from glocal.encoders.encoder import LongDocuments
from glocal.encoders.no_encoder import NO_ENCODER
from glocal.encoders.tokenizer import TextTokenizer
from glocal.errors import ConfigError

__all__ = ["long_documents"]


def long_documents(
    recipe: Recipe, experts: Sequence[ExpertSpec], tokenizer: TextTokenizer
) -> LongDocuments | None:
    """What the encoder does with tokens beyond `max_length`; None where they are cut off.

    Args:
        recipe: The settings.
        experts: Resolved for the encoder.
        tokenizer: Says which special tokens a chunk needs.

    Raises:
        ConfigError: With every setting that does not go with the others.
    """
    config, by_chunks = recipe.encoder, recipe.document.reads == "chunks"
    if not config.document_length:
        if by_chunks:
            raise ConfigError(
                "'document.reads' = chunks, but texts are cut at 'encoder.max_length' = "
                f"{config.max_length} tokens; set encoder.document_length to how many to read"
            )
        return None
    readers = ("A", "D") if by_chunks else ("A",)
    layers = {layer for spec in experts if spec.kind in readers for layer in spec.layers}
    problems = _problems(recipe, readers_found=bool(layers))
    if problems:
        raise ConfigError(problems)
    before, after = tokenizer.special_tokens()
    chunking = Chunking(config.max_length, config.overlap, before, after)
    if chunking.step < 1:
        raise ConfigError(
            f"'encoder.overlap' = {config.overlap} leaves no new token in a chunk of "
            f"{config.max_length} tokens (encoder.max_length), {before + after} of them special; "
            f"it must be below {chunking.body}"
        )
    return LongDocuments(chunking, tuple(sorted(layers)), mean_document=by_chunks)


def _problems(recipe: Recipe, *, readers_found: bool) -> list[str]:
    config = recipe.encoder
    problems = []
    if config.document_length < config.max_length:
        problems.append(
            f"'encoder.document_length' = {config.document_length} is below 'encoder.max_length' = "
            f"{config.max_length}; set it to that or more, or to 0 to read no further"
        )
    if config.name == NO_ENCODER:
        problems.append(
            f"'encoder.document_length' = {config.document_length}, but 'encoder.name' = none; "
            "name an encoder, or set it to 0"
        )
    elif recipe.reader.encode == "static":
        problems.append(
            f"'encoder.document_length' = {config.document_length}, but word vectors "
            "(reader.encode = static) have no window that a text could exceed; set "
            "encoder.max_length to that, and this to 0"
        )
    elif not readers_found:
        problems.append(
            f"'encoder.document_length' = {config.document_length}, but none of the experts "
            f"{list(recipe.experts)} reads beyond the first {config.max_length} tokens; add one "
            "such as A-1, or set document.reads=chunks for the D-n"
        )
    return problems
