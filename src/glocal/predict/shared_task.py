"""The scores of shared tasks on subject indexing: mean recall over several cut-offs, and F1@5.

LLMs4Subjects (SemEval-2025) averages the recall of the first 5, 10, … 50 predictions, and reports
it for each cell of its records (kind of record, language); Annif reports F1@5. Both are means over
documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.arrays import Ints
from glocal.errors import ConfigError
from glocal.metrics.documents import DocumentScores
from glocal.metrics.ranking import f1_at_k, judge, recall_at_k
from glocal.ranking.predictions import Predictions
from glocal.table import Column, Table, columns

CUT_OFFS = tuple(range(5, 51, 5))
_F1 = 5
ALL = "all"


@dataclass(frozen=True)
class SharedTaskScores:
    """Scores of one group of documents.

    Attributes:
        group: The group's name; `all` for every document.
        n_documents: Documents with gold labels.
        mean_recall: Mean of R@5, R@10, … R@50.
        f1: F1@5.
        recall: R@k by its k.
    """

    group: str
    n_documents: int
    mean_recall: float
    f1: float
    recall: dict[int, float]


def shared_task_scores(
    found: Predictions, gold: Any, groups: Sequence[str] | None = None
) -> list[SharedTaskScores]:
    """Return the scores of all documents, and of each group.

    Args:
        found: The best labels of each document; ranks beyond them count as misses.
        gold: Sparse (documents, columns ≥ labels).
        groups: The group of each document; groups without gold are left out.

    Raises:
        ConfigError: There is not one group per document.
    """
    judged = judge(found.indices, gold)
    recall = {k: recall_at_k(judged, k) for k in CUT_OFFS}
    f1 = f1_at_k(judged, _F1)
    cells: dict[str, Ints] = {ALL: np.arange(len(f1))}
    if groups is not None:
        if len(groups) != len(found):
            raise ConfigError(f"{len(groups)} groups for {len(found)} documents")
        kept = np.asarray(groups, dtype=str)[judged.gold.kept]
        cells |= {str(name): np.flatnonzero(kept == name) for name in np.unique(kept)}
    return [_scores(name, recall, f1, cell) for name, cell in cells.items()]


def _scores(
    group: str, recall: dict[int, DocumentScores], f1: DocumentScores, cell: Ints
) -> SharedTaskScores:
    values = {k: scores.take(cell).value for k, scores in recall.items()}
    mean = float(np.mean(list(values.values())))
    return SharedTaskScores(group, len(cell), mean, f1.take(cell).value, values)


def shared_task_table(rows: Sequence[SharedTaskScores]) -> Table:
    """Return the scores as a table, one row per group."""
    shown = [5, 10, 20, 50]
    names = ["mean R@5–50", "F1@5", *(f"R@{k}" for k in shown)]
    head = [Column("", "text"), *columns("share", *names), *columns("count", "documents")]
    cells = [
        (row.group, row.mean_recall, row.f1, *(row.recall[k] for k in shown), row.n_documents)
        for row in rows
    ]
    return Table("Shared-task scores", head, cells, "mean R@5–50 is over k = 5, 10, … 50")
