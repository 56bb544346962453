"""Weights in a model directory: one file, or one for each member of an ensemble.

Members share the encoder's configuration, `encoder/config.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from glocal.encoders.read_facts import position_limit
from glocal.errors import ModelError
from glocal.storage.tensors import write_tensors
from glocal.systems.mixture_ensemble import MixtureEnsemble
from glocal.systems.registry import rebuild_system
from glocal.systems.system import LabelStatistics, System

if TYPE_CHECKING:
    from glocal.config.resolve import ResolvedRecipe
    from glocal.encoders.tokenizer import TextTokenizer
    from glocal.ranking.document_ranker import DocumentRanker


_MOST_LAYERS, _MOST_SEGMENTS = 1000, 16
_LATER = ".tie.offset"  # a tensor that models of earlier versions lack


def save_weights(folder: Path, system: DocumentRanker) -> None:
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
) -> DocumentRanker:
    """Build the system of a recipe, or an ensemble of its members, with the stored weights.

    Raises:
        ModelError: A file is missing, or files do not belong together.
    """
    from safetensors.torch import load_file

    config = json.loads((folder / "encoder" / "config.json").read_text("utf-8"))
    _check_layers(config)
    members = []
    for path in _paths(folder, recipe.train.members):
        if not path.is_file():
            raise ModelError(
                f"the model directory {folder} is incomplete: {path.relative_to(folder)} is "
                "missing; copy the whole directory again, or train the model again"
            )
        with torch.device("meta"):  # shapes without values: nothing large is allocated yet
            _check_shapes(rebuild_system(recipe, statistics, config, tokenizer), path)
        system = rebuild_system(recipe, statistics, config, tokenizer)
        _check_tokens(system, recipe, tokenizer)
        system.load_state_dict(load_file(path))
        members.append(system)
    return members[0].eval() if len(members) == 1 else MixtureEnsemble(members).eval()


def _paths(folder: Path, count: int) -> Iterator[Path]:
    if count == 1:
        yield folder / "model.safetensors"
        return
    for number in range(count):
        yield folder / "members" / str(number) / "model.safetensors"


def _check_layers(config: Any) -> None:
    """Refuse a number of layers that would take forever to build."""
    for name, value in config.items():
        if "layer" in name and isinstance(value, int) and not 0 <= value <= _MOST_LAYERS:
            raise ModelError(
                f"encoder/config.json has {name} = {value}; expected 0 to {_MOST_LAYERS}"
            )


def _check_shapes(system: System, path: Path) -> None:
    """Compare the parameters of a system with those stored in a file.

    Raises:
        ModelError: Names or shapes differ.
    """
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    expected = {name: tuple(value.shape) for name, value in system.state_dict().items()}
    for name in expected.keys() - stored.keys():
        if name.endswith(_LATER):
            stored[name] = expected[name]
    for name in sorted(stored.keys() | expected.keys()):
        if stored.get(name) != expected.get(name):
            raise ModelError(
                f"{path} does not belong to this model: {name} has the shape "
                f"{stored.get(name, 'none')}, and {expected.get(name, 'none')} is expected"
            )


def _check_tokens(system: System, recipe: ResolvedRecipe, tokenizer: TextTokenizer) -> None:
    """Refuse token ids, lengths and segments that the encoder has no vectors for."""
    model = system.encoder.model
    if (facts := tokenizer.facts).cls_type_id not in range(_MOST_SEGMENTS):
        raise ModelError(f"the tokenizer's cls_type_id is {facts.cls_type_id}")
    embeddings = getattr(model, "get_input_embeddings", lambda: None)()
    rows = getattr(embeddings, "num_embeddings", model.config.vocab_size)
    if not 0 <= facts.pad_id < rows or tokenizer.id_bound > rows:
        raise ModelError(
            f"the tokenizer has token ids up to {max(tokenizer.id_bound - 1, facts.pad_id)}, but "
            f"the encoder has vectors for {rows} tokens"
        )
    limit = position_limit(model.config)
    if limit is not None and recipe.encoder.max_length > limit:
        raise ModelError(
            f"encoder.max_length is {recipe.encoder.max_length}, but the encoder reads at most "
            f"{limit} tokens"
        )
