"""Macro precision, recall and F1 at k: averages over labels instead of documents.

- a label's F1 is taken first, then averaged (ME-XML Eq. 12 and Appendix B);
- a label never predicted has P = 0; a label without gold has R = 0;
- the average is given over all labels of a group, or only over those that have test gold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glocal.metrics.ranking import Judged


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Document counts of each gold column within the first k predictions, int64 (columns,).

    Attributes:
        hits: Documents where the label is predicted and gold.
        predicted: Documents where the label is predicted.
        gold: Documents where the label is gold.
    """

    hits: NDArray[np.int64]
    predicted: NDArray[np.int64]
    gold: NDArray[np.int64]


@dataclass(frozen=True)
class MacroScores:
    """Averages over a group of labels; NaN if the group is empty."""

    precision: float
    recall: float
    f1: float
    n_labels: int


def label_counts(judged: Judged, k: int) -> LabelCounts:
    """Count hits, predictions and gold of every column."""
    indices, hits = judged.indices[:, :k], judged.hits[:, :k]
    columns = judged.gold.n_columns
    return LabelCounts(
        hits=np.bincount(indices[hits], minlength=columns),
        predicted=np.bincount(indices[indices >= 0], minlength=columns),
        gold=np.bincount(judged.gold.matrix.indices, minlength=columns),
    )


def macro_scores(
    counts: LabelCounts, columns: NDArray[np.bool_] | None = None, *, with_gold: bool = False
) -> MacroScores:
    """Average over labels.

    Args:
        counts: From `label_counts`.
        columns: Columns of the group; None for all columns.
        with_gold: Average only over columns that are gold for some document.
    """
    chosen = np.ones(len(counts.gold), dtype=bool) if columns is None else columns
    if with_gold:
        chosen = chosen & (counts.gold > 0)
    hits, predicted, gold = counts.hits[chosen], counts.predicted[chosen], counts.gold[chosen]
    if not len(hits):
        return MacroScores(*3 * (float("nan"),), n_labels=0)
    return MacroScores(
        precision=_mean_ratio(hits, predicted),
        recall=_mean_ratio(hits, gold),
        f1=_mean_ratio(2 * hits, predicted + gold),
        n_labels=len(hits),
    )


def _mean_ratio(numerators: NDArray[np.int64], denominators: NDArray[np.int64]) -> float:
    # Wherever a denominator is 0 so is the numerator, and the convention is 0.
    return float(np.mean(numerators / np.maximum(denominators, 1)))
