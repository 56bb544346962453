"""Reading the facts about a recipe's encoder that its rules depend on, without its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glocal.config.encoder_facts import EncoderFacts
from glocal.config.settings import BILSTM, NO_ENCODER, EncoderConfig, Recipe
from glocal.errors import require_training_packages

if TYPE_CHECKING:
    from torch import nn

# Positions that are never used by a token, by model type: RoBERTa's begin after its padding index.
_RESERVED = {"roberta": 2, "xlm-roberta": 2}


def read_encoder_facts(recipe: Recipe) -> EncoderFacts:
    """Read the configuration of a recipe's encoder, and see that its files are there.

    Raises:
        GlocalError: The encoder, or the word vectors in its place, are missing or unreadable.
    """
    static = recipe.reads_word_vectors
    width = _vector_width(recipe) if static or recipe.uses_teacher else 0
    if recipe.encoder.name == NO_ENCODER:
        return EncoderFacts(n_layers=0, hidden_size=1)
    if recipe.encoder.name == BILSTM:
        width = 2 * recipe.encoder.lstm_size
        return EncoderFacts(n_layers=1, hidden_size=width, can_be_cut=False)
    if static:
        return EncoderFacts(n_layers=0, hidden_size=width)
    return _encoder_facts(recipe.encoder)


def _encoder_facts(config: EncoderConfig) -> EncoderFacts:
    require_training_packages(f"the encoder '{config.name}'")
    from glocal.encoders.encoder import layers_path
    from glocal.encoders.loading import check_weights, load_encoder_tokenizer

    check_weights(config.name)
    tokenizer = load_encoder_tokenizer(config.name)
    model = _without_weights(config)
    return EncoderFacts(
        n_layers=int(model.config.num_hidden_layers),
        hidden_size=int(model.config.hidden_size),
        max_tokens=position_limit(model.config),
        special_tokens=sum(tokenizer.special_tokens()) if config.document_length else 0,
        can_be_cut=layers_path(model) is not None,
        can_checkpoint=bool(model.supports_gradient_checkpointing),
    )


def position_limit(config: Any) -> int | None:
    """Return how many tokens an encoder can read; None for no limit.

    Args:
        config: The encoder's Hugging Face configuration.
    """
    positions = getattr(config, "max_position_embeddings", None)
    limit = positions - _RESERVED.get(config.model_type, 0) if positions else 0
    return limit if limit > 0 else None


def _without_weights(config: EncoderConfig) -> Any:
    """Return the encoder's modules on the meta device, where tensors have shapes but no values."""
    require_training_packages(f"the encoder '{config.name}'")
    import torch

    from glocal.encoders.loading import model_from_config, read_config

    with torch.device("meta"):
        return model_from_config(read_config(config.name), config)


def _vector_width(recipe: Recipe) -> int:
    """Return the width of the word vectors that `teacher.vectors` names."""
    from glocal.encoders.static import is_vector_file

    source = recipe.teacher.vectors
    if source == "corpus":
        from glocal.encoders.word_vectors import require_gensim

        require_gensim()
        return recipe.teacher.dimensions
    if is_vector_file(source):
        from glocal.encoders.word_vectors import word_vector_width

        return word_vector_width(source)
    encoder = recipe.encoder if source == "encoder" else replace(recipe.encoder, name=source)
    if encoder.name in {NO_ENCODER, BILSTM}:
        return 0  # a rule reports this
    embeddings: nn.Embedding = _without_weights(encoder).get_input_embeddings()
    return embeddings.embedding_dim
