"""Changes of the labels of a stored model: add, remove, rename and merge.

- Nothing is trained again but the new labels: the scores of all others stay the same.
- The changed model replaces the old one at once, when it is complete; what was done is kept in the
  model's history (`history.jsonl`). A model in use by another process stays as it is for it.
- Bad input is reported before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glocal.companions.companion_list import Companions
from glocal.data.corpus import Corpus
from glocal.errors import ModelError
from glocal.progress import Progress
from glocal.ranking.document_ranker import DocumentRanker
from glocal.ranking.graph_ranker import GraphRanker
from glocal.ranking.words_ranker import WordsRanker
from glocal.storage.model_directory import StoredModel, load_model, rewrite_model
from glocal.vocabulary import label_change
from glocal.vocabulary.label_change import LabelChange
from glocal.vocabulary.label_table import LabelTable


@dataclass(frozen=True)
class LabelUpdate:
    """A change that was made to a model.

    Attributes:
        path: The model directory.
        change: `add`, `remove`, `rename` or `merge`.
        labels: Ids of the labels it was about.
        n_labels: Number of labels afterwards.
        n_examples: Number of example texts; only for `add`.
    """

    path: Path
    change: str
    labels: tuple[str, ...]
    n_labels: int
    n_examples: int = 0


def add_labels(
    path: str | Path,
    table: LabelTable,
    *,
    examples: Corpus | None = None,
    train: Corpus | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> LabelUpdate:
    """Give a stored model labels it has never seen.

    Args:
        path: The model directory.
        table: The new labels.
        examples: Texts that have them. Labels without any are scored by their names.
        train: Training texts to fit the new labels against: for an encoder, and where the model
            keeps too few of its own.
        device: Where the encoder reads examples: `auto`, `cpu` or `cuda`.
        progress: Receives how many texts the encoder has read.

    Raises:
        DataError: A label exists already, or an example has a label that is neither new nor known.
        ModelError: The model cannot take new labels, or cannot be written.

    Example:
        >>> from glocal import LabelTable, add_labels
        >>> add_labels("model/", LabelTable(["herb"], ["Herb"])).labels
        ('herb',)
    """
    model = load_model(path)
    change = label_change.added(model.labels, table, examples=examples, train=train)
    n_examples = 0 if examples is None else len(examples)
    entry = {"change": "add", "labels": table.ids, "examples": n_examples}
    return _apply(path, model, change, entry, device=device, progress=progress)


def remove_labels(path: str | Path, ids: Sequence[str]) -> LabelUpdate:
    """Remove labels from a stored model.

    Raises:
        DataError: A label is not in the model, or none would be left.
        ModelError: The labels of this model cannot be changed, or it cannot be written.

    Example:
        >>> from glocal import remove_labels
        >>> remove_labels("model/", ["fruit"]).n_labels
        1
    """
    model = load_model(path)
    change = label_change.removed(model.labels, ids)
    return _apply(path, model, change, {"change": "remove", "labels": list(ids)})


def rename_labels(
    path: str | Path, ids: Mapping[str, str], *, names: Mapping[str, str] | None = None
) -> LabelUpdate:
    """Give labels of a stored model other ids or names.

    Args:
        path: The model directory.
        ids: The new id of each label, by its old one.
        names: New names by old id.

    Raises:
        DataError: A label is not in the model, or a new id is already another label's.
        ModelError: The labels of this model cannot be changed, or it cannot be written.

    Example:
        >>> from glocal import rename_labels
        >>> rename_labels("model/", {"fruit": "fruits"}).labels
        ('fruit',)
    """
    model = load_model(path)
    change = label_change.renamed(model.labels, ids, names or {})
    model.decision = model.decision.renamed(ids)
    labels = list(dict.fromkeys([*ids, *(names or {})]))
    entry = {"change": "rename", "labels": labels, "ids": dict(ids), "names": dict(names or {})}
    return _apply(path, model, change, entry)


def merge_labels(path: str | Path, ids: Sequence[str], *, into: str) -> LabelUpdate:
    """Merge labels of a stored model into another one of its labels.

    Args:
        path: The model directory.
        ids: The labels that disappear.
        into: The label that takes their place.

    Raises:
        DataError: A label is not in the model, or is to be merged into itself.
        ModelError: The labels of this model cannot be changed, or it cannot be written.

    Example:
        >>> from glocal import merge_labels
        >>> merge_labels("model/", ["animal"], into="fruit").n_labels
        1
    """
    model = load_model(path)
    change = label_change.merged(model.labels, ids, into)
    return _apply(path, model, change, {"change": "merge", "labels": list(ids), "into": into})


def changed_model(
    path: str | Path,
    model: StoredModel,
    change: LabelChange,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
) -> StoredModel:
    """Return a model after a change of its labels; its companions change beside its network.

    Args:
        path: The model directory.
        model: The model before the change.
        change: The change.
        device: Where an encoder reads texts.
        progress: Receives how many texts it has read.
    """
    system: DocumentRanker
    with ThreadPoolExecutor(1) as pool:
        companions = pool.submit((model.companions or Companions()).with_labels, change)
        if model.recipe.reads_words_alone:
            system = WordsRanker(change.after.counts)
            system.combination = model.system.combination
        else:
            from glocal.update.expert_rows import changed_system

            system = changed_system(Path(path), model, change, device=device, progress=progress)
    return replace(model, system=system, labels=change.after, companions=companions.result())


def _apply(
    path: str | Path,
    model: StoredModel,
    change: LabelChange,
    entry: dict[str, Any],
    **options: Any,
) -> LabelUpdate:
    """Change a model and write it."""
    if isinstance(model.system, GraphRanker):
        raise ModelError(
            f"{path} is an exported model, whose labels cannot be changed; change those of the "
            "model it was exported from, and export that again"
        )
    changed = changed_model(path, model, change, **options)
    changed.decision = model.decision.restricted(change.after.index)
    rewrite_model(path, changed, change={**entry, "n_labels": len(change.after)})
    return LabelUpdate(
        Path(path),
        str(entry["change"]),
        tuple(entry["labels"]),
        len(change.after),
        int(entry.get("examples", 0)),
    )
