"""Metrics of extreme multi-label classification: pure functions on top-k arrays and CSR gold.

- predictions come as `indices int64 (n, k)`, best first, -1 for an empty slot; gold as a sparse
  matrix of documents × labels, whose columns beyond the label space can only be missed;
- never a dense documents × labels matrix: hits are found by a sorted search in the CSR;
- each ranking metric gives its value for every document (`DocumentScores`), from which the mean,
  the ratio of sums and the paired bootstrap are all computed;
- numpy and scipy only.

    gold = prepare_gold(matrix)
    judged = judge(indices, gold)
    precision_at_k(judged, 5).value
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
    from glocal.metrics.documents import DocumentScores
    from glocal.metrics.gold import Gold, best_weights, hit_matrix, prepare_gold
    from glocal.metrics.macro import LabelCounts, MacroScores, label_counts, macro_scores
    from glocal.metrics.propensity import (
        Weighted,
        inverse_propensity,
        psndcg_at_k,
        psp_at_k,
        weigh,
    )
    from glocal.metrics.ranking import (
        Judged,
        judge,
        ndcg_at_k,
        precision_at_k,
        r_precision_at_k,
        recall_at_k,
    )
    from glocal.metrics.reliability import CalibrationError, expected_calibration_error
    from glocal.metrics.threshold import MicroScores, micro_scores
    from glocal.metrics.topk import merge_topk, sort_topk

_MODULES = {
    "BootstrapResult": "bootstrap",
    "CalibrationError": "reliability",
    "DocumentScores": "documents",
    "Gold": "gold",
    "Judged": "ranking",
    "LabelCounts": "macro",
    "MacroScores": "macro",
    "MicroScores": "threshold",
    "Weighted": "propensity",
    "best_weights": "gold",
    "expected_calibration_error": "reliability",
    "hit_matrix": "gold",
    "inverse_propensity": "propensity",
    "judge": "ranking",
    "label_counts": "macro",
    "macro_scores": "macro",
    "merge_topk": "topk",
    "micro_scores": "threshold",
    "ndcg_at_k": "ranking",
    "paired_bootstrap": "bootstrap",
    "precision_at_k": "ranking",
    "prepare_gold": "gold",
    "psndcg_at_k": "propensity",
    "psp_at_k": "propensity",
    "r_precision_at_k": "ranking",
    "recall_at_k": "ranking",
    "sort_topk": "topk",
    "weigh": "propensity",
}

__all__ = [
    "BootstrapResult",
    "CalibrationError",
    "DocumentScores",
    "Gold",
    "Judged",
    "LabelCounts",
    "MacroScores",
    "MicroScores",
    "Weighted",
    "best_weights",
    "expected_calibration_error",
    "hit_matrix",
    "inverse_propensity",
    "judge",
    "label_counts",
    "macro_scores",
    "merge_topk",
    "micro_scores",
    "ndcg_at_k",
    "paired_bootstrap",
    "precision_at_k",
    "prepare_gold",
    "psndcg_at_k",
    "psp_at_k",
    "r_precision_at_k",
    "recall_at_k",
    "sort_topk",
    "weigh",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
