"""The label rows of a system's experts after a change of its labels.

Rows of labels that stay are copied; those of merged labels are averaged; those of new labels are
made from their texts and examples, and in a further training old ones learn too
(`learnt_rows.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from glocal.errors import ModelError
from glocal.experts.document import DocumentExpert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.experts.sparse import SparseExpert
from glocal.progress import Progress
from glocal.ranking.ranker import Ranker
from glocal.storage.model_directory import StoredModel
from glocal.systems.mixture import ExpertMixture
from glocal.systems.mixture_ensemble import MixtureEnsemble, mixtures_of
from glocal.systems.registry import rebuild_system
from glocal.systems.system import LabelStatistics
from glocal.update.learnt_rows import LearntRows
from glocal.vocabulary.label_change import LabelChange

_LEAVES = "tree.leaves"  # the stored clusters of labels


def changed_system(
    folder: Path,
    model: StoredModel,
    change: LabelChange,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Ranker:
    """Return the system of a model after a change of its labels.

    Args:
        folder: The model directory.
        model: The model before the change.
        change: The change.
        device: Where the encoder reads texts.
        progress: Receives how many texts it has read.

    Raises:
        ModelError: The system's labels cannot be changed.
    """
    mixtures = mixtures_of(model.system) if isinstance(model.system, Ranker) else []
    if not mixtures:
        raise ModelError(
            f"the labels of a model of the system {model.recipe.system} cannot be changed; train "
            "it again with the labels wanted"
        )
    after = change.after
    statistics = LabelStatistics(after.counts, after.n_documents, n_added=after.n_added)
    config = json.loads((folder / "encoder" / "config.json").read_text("utf-8"))
    changed = []
    for mixture in mixtures:
        _check(mixture)
        system = rebuild_system(model.recipe, statistics, config, model.tokenizer)
        system.load_state_dict(_rows_kept(mixture, system.state_dict(), change))
        assert isinstance(system, ExpertMixture)
        if change.n_new or change.continues:
            LearntRows(mixture, model.tokenizer, change, device, progress).fill(system)
        _keep_clusters(mixture, system, change)
        changed.append(system.eval())
    whole: Ranker = changed[0] if len(changed) == 1 else MixtureEnsemble(changed)
    whole.combination = model.system.combination
    return whole


def _check(mixture: ExpertMixture) -> None:
    for expert in mixture.experts:
        flat = isinstance(expert, LabelAttentionExpert | SparseExpert) or (
            type(expert) is DocumentExpert and expert.head is None
        )
        if not flat:
            raise ModelError(
                f"the labels of a model with the expert {expert.name} cannot be changed (only D "
                "without label clusters, A and S can); train it again with the labels wanted"
            )


def _rows_kept(
    mixture: ExpertMixture, blank: dict[str, Tensor], change: LabelChange
) -> dict[str, Tensor]:
    """Return a state with the rows of labels that stay; those of new labels are zero."""
    shares = change.columns.T.tocsr()  # (after − new, before)
    label_names = _label_tensors(mixture)
    state = {}
    for name, old in mixture.state_dict().items():
        if name not in label_names:
            state[name] = blank[name] if name == _LEAVES else old  # see `_keep_clusters`
            continue
        new = torch.zeros_like(blank[name])
        flat = old.reshape(len(old), -1).float().cpu().numpy()
        kept = torch.from_numpy(shares @ flat).reshape(-1, *old.shape[1:])
        new[: len(kept)] = kept.to(new)
        state[name] = new
    return state


def _keep_clusters(mixture: ExpertMixture, system: ExpertMixture, change: LabelChange) -> None:
    """Leave labels in their clusters, and put new ones among labels with similar vectors."""
    if mixture.tree is None or system.tree is None:
        return
    shares = change.columns.T.tocsr()  # of merged labels, the first decides
    first = shares.indices[shares.indptr[:-1]]
    leaves = mixture.tree.leaves.cpu()[torch.from_numpy(first).long()]
    vectors, *_ = system.tree.scorers[0].label_tensors()
    system.tree.place_labels(leaves, vectors)


def _label_tensors(mixture: ExpertMixture) -> set[str]:
    """Return the names of the stored tensors that have a row for each label."""
    names = set()
    for place, expert in enumerate(mixture.experts):
        for own in ("weight", "query", "bias"):
            if isinstance(getattr(expert, own, None), Tensor):
                names.add(f"experts.{place}.{own}")
        if getattr(expert, "tie", None) is not None:
            names |= {f"experts.{place}.tie.{own}" for own in ("rows", "offset")}
    return names
