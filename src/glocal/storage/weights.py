"""Weights in a model directory: one file, or one for each member of an ensemble.

Members share the encoder's configuration, `encoder/config.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from glocal.errors import ModelError
from glocal.storage.tensors import write_tensors
from glocal.systems.mixture_ensemble import MixtureEnsemble
from glocal.systems.registry import rebuild_system
from glocal.systems.system import LabelStatistics, System

if TYPE_CHECKING:
    from glocal.config.resolve import ResolvedRecipe
    from glocal.encoders.tokenizer import TextTokenizer
    from glocal.ranking.ranker import Ranker


def save_weights(folder: Path, system: Ranker) -> None:
    """Write the encoder's configuration and the weights of a system or of every member."""
    members = list(system.mixtures()) if isinstance(system, MixtureEnsemble) else [system]
    config = folder / "encoder" / "config.json"
    config.parent.mkdir()
    for member, path in zip(members, _paths(folder, len(members)), strict=True):
        assert isinstance(member, System)
        encoder = member.encoder
        values = {**encoder.model.config.to_dict(), "glocal_layers": encoder.total_layers}
        config.write_text(json.dumps(values, indent=2, default=str) + "\n", encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(member.state_dict(), path)


def load_weights(
    folder: Path, recipe: ResolvedRecipe, statistics: LabelStatistics, tokenizer: TextTokenizer
) -> Ranker:
    """Build the system of a recipe, or an ensemble of its members, with the stored weights.

    Raises:
        ModelError: A file is missing.
    """
    from safetensors.torch import load_file

    paths = _paths(folder, recipe.train.members)
    missing = [str(path.relative_to(folder)) for path in paths if not path.is_file()]
    if missing:
        raise ModelError(
            f"the model directory {folder} is incomplete: {', '.join(missing)} is missing; "
            "copy the whole directory again, or train the model again"
        )
    members = []
    for path in paths:
        system = rebuild_system(recipe, statistics, folder / "encoder" / "config.json", tokenizer)
        system.load_state_dict(load_file(path))
        members.append(system)
    return members[0] if len(members) == 1 else MixtureEnsemble(members)


def _paths(folder: Path, count: int) -> list[Path]:
    if count == 1:
        return [folder / "model.safetensors"]
    return [folder / "members" / str(number) / "model.safetensors" for number in range(count)]
