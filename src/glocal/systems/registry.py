"""Systems by name: from a recipe and the training labels to a system on its encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.config import Recipe
from glocal.config.expert_names import SPARSE_EXPERT, TEACHER, parse_experts
from glocal.config.published_systems import CLUSTERS, MIXTURE, PUBLISHED_SYSTEMS, PublishedSystem
from glocal.encoders.encoder import Encoder
from glocal.encoders.loading import load_pretrained, model_from_config, n_layers
from glocal.encoders.no_encoder import NO_ENCODER, NoEncoderModel, NoTokenizer
from glocal.encoders.tokenizer import TextTokenizer
from glocal.encoders.word_encoder import WORD_VECTORS, WordVectorModel
from glocal.errors import ConfigError, did_you_mean
from glocal.progress import Progress
from glocal.systems.aplc_xlnet import APLCXLNet
from glocal.systems.label_texts import check_label_text, encode_label_text
from glocal.systems.long_documents import long_documents
from glocal.systems.mixture import ExpertMixture
from glocal.systems.system import LabelStatistics, System

if TYPE_CHECKING:
    from glocal.encoders.static import StaticVectors

__all__ = ["FAMILIES", "build_system", "rebuild_system"]

_SHORTLIST_FROM = 4000  # labels; fewer are scored in full even on a CPU

FAMILIES: dict[str, type[System]] = {MIXTURE: ExpertMixture, CLUSTERS: APLCXLNet}


def build_system(
    recipe: Recipe,
    statistics: LabelStatistics,
    *,
    device_type: str = "cpu",
    vectors: StaticVectors | None = None,
    progress: Progress | None = None,
) -> tuple[System, TextTokenizer]:
    """A new system on its pretrained encoder, with the tokenizer.

    Args:
        recipe: The settings; what they leave to `auto` is decided here, once and for all, so that a
            model predicts the same wherever it is loaded.
        statistics: Of the training labels.
        device_type: Where it will be trained.
        vectors: Of words, where the recipe reads these (`reader.encode = "static"`).
        progress: Called with (done, total) while labels' texts are encoded.
    """
    check_label_text(recipe, statistics)
    recipe = _resolve_candidates(recipe, statistics.n_labels, device_type)
    model, tokenizer = _load_encoder(recipe, vectors)
    _check_length(recipe, model)
    encode = partial(
        encode_label_text,
        statistics,
        tokenizer=tokenizer,
        max_length=recipe.encoder.max_length,
        device=device_type,
        progress=progress,
    )
    return _assemble(recipe, model, tokenizer, encode), tokenizer


def rebuild_system(
    recipe: Recipe,
    statistics: LabelStatistics,
    config: Path,
    tokenizer: TextTokenizer,
) -> System:
    """A system whose weights are to be loaded, from a stored encoder configuration."""
    mapping = json.loads(config.read_text("utf-8"))
    total = mapping.pop("glocal_layers")
    if mapping["model_type"] == WORD_VECTORS:
        model: Any = WordVectorModel(mapping["vocab_size"], mapping["hidden_size"])
    elif mapping["model_type"] == NO_ENCODER:
        model = NoEncoderModel()
    else:
        model = model_from_config(mapping, recipe.encoder)
    return _assemble(recipe, model, tokenizer, lambda _: statistics, total=total)


def _load_encoder(recipe: Recipe, vectors: StaticVectors | None) -> tuple[Any, TextTokenizer]:
    if recipe.encoder.name == NO_ENCODER:
        return NoEncoderModel(), NoTokenizer()
    if recipe.reader.encode != "static":
        return load_pretrained(recipe.encoder)
    assert vectors is not None, "word vectors are read"
    return WordVectorModel.of(vectors)


def _assemble(
    recipe: Recipe,
    model: Any,
    tokenizer: TextTokenizer,
    statistics_for: Callable[[Encoder], LabelStatistics],
    *,
    total: int | None = None,
) -> System:
    # `last` and `middle` refer to the encoder before it was cut.
    total = n_layers(model) if total is None else total
    experts = parse_experts(recipe.experts, total)
    layers = {layer for expert in experts for layer in expert.layers}
    encoder = Encoder(
        model,
        layers or {0},  # the teacher and the sparse expert read none
        cls_last=tokenizer.facts.cls_last,
        cls_type_id=tokenizer.facts.cls_type_id,
        pooling=recipe.encoder.pooling,
        total_layers=total,
        long_documents=long_documents(recipe, experts, tokenizer),
    )
    if recipe.encoder.gradient_checkpointing:
        if not model.supports_gradient_checkpointing:
            raise ConfigError(
                f"'encoder.gradient_checkpointing' = true, but {type(model).__name__} cannot do it"
            )
        model.gradient_checkpointing_enable()
    family = FAMILIES[_published(recipe).family]
    return family(recipe, encoder, experts, statistics_for(encoder))


def _resolve_candidates(recipe: Recipe, n_labels: int, device_type: str) -> Recipe:
    """Every label on a GPU; on a CPU a shortlist where labels are many and it can be had."""
    if recipe.candidates.mode != "auto":
        return recipe
    possible = (
        recipe.loss.kind == "individual"
        and len(set(recipe.experts) - {TEACHER, SPARSE_EXPERT}) > 1  # these cost nothing
        and any(name.startswith(("D-", "R-")) for name in recipe.experts)
    )
    shortlist = device_type == "cpu" and possible and n_labels >= _SHORTLIST_FROM
    mode = "shortlist" if shortlist else "full"
    return replace(recipe, candidates=replace(recipe.candidates, mode=mode))


def _published(recipe: Recipe) -> PublishedSystem:
    name = recipe.system
    if name not in PUBLISHED_SYSTEMS:
        hint, known = did_you_mean(name, PUBLISHED_SYSTEMS), ", ".join(PUBLISHED_SYSTEMS)
        raise ConfigError(f"there is no system '{name}'{hint}; there are {known}")
    kind = PUBLISHED_SYSTEMS[name].required
    if kind and not any(expert.startswith(f"{kind}-") for expert in recipe.experts):
        raise ConfigError(
            f"'experts' = {list(recipe.experts)}: {name} reads with its network; "
            'name a reader expert, experts = ["R-last"]'
        )
    return PUBLISHED_SYSTEMS[name]


def _check_length(recipe: Recipe, model: Any) -> None:
    limit = getattr(model.config, "max_position_embeddings", None)
    # RoBERTa's positions start after its padding index.
    reserved = 2 if getattr(model.config, "model_type", "") in {"roberta", "xlm-roberta"} else 0
    if isinstance(limit, int) and 0 < limit - reserved < recipe.encoder.max_length:
        raise ConfigError(
            f"'encoder.max_length' is {recipe.encoder.max_length}, but '{recipe.encoder.name}' "
            f"reads at most {limit - reserved} tokens"
        )
