"""Facts about a model directory, read without loading the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from glocal.data.cache_contents import folder_size
from glocal.storage.integrity import Integrity, model_integrity
from glocal.storage.model_directory import (
    GRAPH,
    read_history,
    read_labels,
    read_metrics,
    read_settings,
)


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a stored model.

    Args:
        path: The model directory.
        format_version: Version of the directory's format.
        library_version: Version of the library that wrote it.
        created: Date and time of writing.
        n_bytes: Size of all files.
        n_labels: Number of labels it can predict.
        n_unseen_labels: How many of them had no training text.
        n_documents: Number of training texts.
        recipe: Every setting it was trained with.
        calibration: Stored calibration of the probabilities.
        decision: Stored threshold or rule for the default tags; empty if there is none.
        metrics: Scores measured at the end of training.
        integrity: Files with a stored checksum, and those of them that changed.
        history: Changes made after training, oldest first.
        graph: Runtime and precision of an exported model; empty for others.
    """

    path: str
    format_version: int
    library_version: str
    created: str
    n_bytes: int
    n_labels: int
    n_unseen_labels: int
    n_documents: int
    recipe: Mapping[str, Any]
    calibration: Mapping[str, Any]
    decision: Mapping[str, Any]
    metrics: Mapping[str, Any]
    integrity: Integrity
    history: Sequence[Mapping[str, Any]] = ()
    graph: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return nested mappings and lists, for JSON."""
        return asdict(self)


def model_info(path: str | Path) -> ModelInfo:
    """Read the facts about a model directory.

    Raises:
        ModelError: The folder is not a model directory, or is damaged.
    """
    folder = Path(path)
    settings, labels = read_settings(folder), read_labels(folder)
    return ModelInfo(
        path=str(folder),
        format_version=int(settings["format_version"]),
        library_version=str(settings.get("library_version", "")),
        created=str(settings.get("created", "")),
        n_bytes=folder_size(folder),
        n_labels=len(labels),
        n_unseen_labels=int((labels.counts == 0).sum()),
        n_documents=labels.n_documents,
        recipe=settings["recipe"],
        calibration=settings.get("calibration", {}),
        decision=settings.get("decision", {}),
        metrics=read_metrics(folder),
        integrity=model_integrity(folder),
        history=read_history(folder),
        graph=settings.get(GRAPH, {}),
    )
