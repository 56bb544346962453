"""Recipes: every setting of a run, typed, documented, read from and written to TOML."""

from __future__ import annotations

from glocal.config.expert_settings import (
    AplcConfig,
    AttentionConfig,
    DocumentConfig,
    ReaderConfig,
    SparseConfig,
    TeacherConfig,
)
from glocal.config.recipe_files import (
    PRESETS,
    load_recipe,
    parse_override,
    recipe_from_mapping,
    recipe_names,
)
from glocal.config.settings import (
    CandidatesConfig,
    EncoderConfig,
    LabelsConfig,
    LossConfig,
    Recipe,
    TrainConfig,
)
from glocal.config.toml import recipe_to_mapping, to_toml

__all__ = [
    "PRESETS",
    "AplcConfig",
    "AttentionConfig",
    "CandidatesConfig",
    "DocumentConfig",
    "EncoderConfig",
    "LabelsConfig",
    "LossConfig",
    "ReaderConfig",
    "Recipe",
    "SparseConfig",
    "TeacherConfig",
    "TrainConfig",
    "load_recipe",
    "parse_override",
    "recipe_from_mapping",
    "recipe_names",
    "recipe_to_mapping",
    "to_toml",
]
