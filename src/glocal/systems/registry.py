"""Systems by name: from a resolved recipe and the training labels to a system on its encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glocal.config.expert_names import ExpertSpec, parse_experts
from glocal.config.published_systems import CLUSTERS, MIXTURE, PUBLISHED_SYSTEMS
from glocal.config.resolve import ResolvedRecipe
from glocal.config.settings import BILSTM, NO_ENCODER
from glocal.encoders.encoder import Encoder, LongDocuments
from glocal.encoders.label_vectors import label_vectors
from glocal.encoders.loading import load_pretrained, model_from_config
from glocal.encoders.lstm_encoder import LSTM, BiLstmModel
from glocal.encoders.tokenizer import TextTokenizer
from glocal.encoders.word_encoder import WORD_VECTORS, NoEncoderModel, WordVectorModel
from glocal.encoders.word_tokenizer import NoTokenizer
from glocal.progress import Progress
from glocal.systems.aplc_xlnet import APLCXLNet
from glocal.systems.mixture import ExpertMixture
from glocal.systems.system import LabelStatistics, System
from glocal.systems.undrawn_weights import UndrawnWeights

if TYPE_CHECKING:
    from glocal.encoders.static import StaticVectors

FAMILIES: dict[str, type[System]] = {MIXTURE: ExpertMixture, CLUSTERS: APLCXLNet}


def build_system(
    recipe: ResolvedRecipe,
    statistics: LabelStatistics,
    *,
    device_type: str = "cpu",
    vectors: StaticVectors | None = None,
    progress: Progress | None = None,
) -> tuple[System, TextTokenizer]:
    """Build a new system on its pretrained encoder.

    Args:
        recipe: The settings.
        statistics: Statistics and texts of the training labels.
        device_type: Where label texts are encoded.
        vectors: Word vectors, where the recipe reads them.
        progress: Receives how many label texts are encoded.

    Returns:
        The system and the encoder's tokenizer.
    """
    model, tokenizer = _load_encoder(recipe, vectors)
    n_layers = int(model.config.num_hidden_layers)
    encoder, experts = _encoder_of(recipe, model, tokenizer, n_layers)
    if recipe.uses_label_text:
        assert statistics.texts is not None, "gathered where the recipe uses label text"
        found = label_vectors(
            encoder,
            tokenizer,
            statistics.texts,
            max_length=recipe.encoder.max_length,
            device=device_type,
            progress=progress,
        )
        statistics = replace(statistics, text_vectors=found)
    return _family(recipe)(recipe, encoder, experts, statistics), tokenizer


def rebuild_system(
    recipe: ResolvedRecipe,
    statistics: LabelStatistics,
    config: Mapping[str, Any],
    tokenizer: TextTokenizer,
) -> System:
    """Build a system whose weights are to be loaded, from a stored encoder configuration."""
    mapping = dict(config)
    n_layers = int(mapping.pop("glocal_layers"))
    with UndrawnWeights():
        model = _stored_encoder(mapping, recipe)
        encoder, experts = _encoder_of(recipe, model, tokenizer, n_layers)
        return _family(recipe)(recipe, encoder, experts, statistics)


def _stored_encoder(mapping: dict[str, Any], recipe: ResolvedRecipe) -> Any:
    if mapping["model_type"] == WORD_VECTORS:
        return WordVectorModel(mapping["vocab_size"], mapping["hidden_size"])
    if mapping["model_type"] == LSTM:
        sizes = mapping["vocab_size"], mapping["vector_size"], mapping["lstm_size"]
        return BiLstmModel(*sizes, mapping["dropout"])
    if mapping["model_type"] == NO_ENCODER:
        return NoEncoderModel()
    return model_from_config(mapping, recipe.encoder)


def _load_encoder(
    recipe: ResolvedRecipe, vectors: StaticVectors | None
) -> tuple[Any, TextTokenizer]:
    if recipe.encoder.name == NO_ENCODER:
        return NoEncoderModel(), NoTokenizer()
    if not recipe.reads_word_vectors:
        return load_pretrained(recipe.encoder)
    assert vectors is not None, "gathered where the recipe reads word vectors"
    if recipe.encoder.name == BILSTM:
        return BiLstmModel.of(vectors, recipe.encoder.lstm_size, recipe.encoder.dropout)
    return WordVectorModel.of(vectors)


def _family(recipe: ResolvedRecipe) -> type[System]:
    return FAMILIES[PUBLISHED_SYSTEMS[recipe.system].family]


def _encoder_of(
    recipe: ResolvedRecipe, model: Any, tokenizer: TextTokenizer, n_layers: int
) -> tuple[Encoder, list[ExpertSpec]]:
    """Return the encoder of a recipe, and the experts that it computes layers for.

    Args:
        recipe: The settings.
        model: The encoder's model.
        tokenizer: The encoder's tokenizer.
        n_layers: Layers of the encoder before it was cut, which `last` and `middle` refer to.
    """
    experts = parse_experts(recipe.experts, n_layers)
    layers = {layer for expert in experts for layer in expert.layers}
    encoder = Encoder(
        model,
        layers or {0},  # the teacher and the sparse expert read none
        cls_last=tokenizer.facts.cls_last,
        cls_type_id=tokenizer.facts.cls_type_id,
        pooling=recipe.encoder.pooling,
        total_layers=n_layers,
        long_documents=_long_documents(recipe, experts, tokenizer),
    )
    if recipe.encoder.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return encoder, experts


def _long_documents(
    recipe: ResolvedRecipe, experts: Sequence[ExpertSpec], tokenizer: TextTokenizer
) -> LongDocuments | None:
    """Return how tokens beyond `max_length` are read; None where they are cut off."""
    by_chunks, chunking = recipe.document.reads == "chunks", tokenizer.chunking(recipe.encoder)
    if chunking is None:
        return None
    readers = ("A", "D") if by_chunks else ("A",)
    layers = {layer for spec in experts if spec.kind in readers for layer in spec.layers}
    return LongDocuments(chunking, tuple(sorted(layers)), mean_document=by_chunks)
