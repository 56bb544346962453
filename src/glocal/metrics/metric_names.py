"""Metrics by name, as recipes and reports write them: `P@5`, `nDCG@3`, `PSP@1`, `micro-F1`.

Larger is better for every one of them, so each can choose a checkpoint.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glocal.metrics.documents import DocumentScores
from glocal.metrics.propensity import Weighted, psndcg_at_k, psp_at_k
from glocal.metrics.ranking import (
    Judged,
    ndcg_at_k,
    precision_at_k,
    r_precision_at_k,
    recall_at_k,
)

RANKING: Mapping[str, Callable[[Judged, int], DocumentScores]] = {
    "P": precision_at_k,
    "nDCG": ndcg_at_k,
    "R": recall_at_k,
    "RP": r_precision_at_k,
}
WEIGHTED: Mapping[str, Callable[[Weighted, int], DocumentScores]] = {
    "PSP": psp_at_k,
    "PSnDCG": psndcg_at_k,
}
# The attribute of `MacroScores` that each stands for.
MACRO: Mapping[str, str] = {"macro-P": "precision", "macro-R": "recall", "macro-F": "f1"}
MICRO = "micro-F1"

_FAMILIES = (*RANKING, *WEIGHTED, *MACRO)


@dataclass(frozen=True)
class MetricName:
    """A metric's family (`nDCG`) and its k; micro-F1 has k = 0."""

    family: str
    k: int

    def __str__(self) -> str:
        return f"{self.family}@{self.k}" if self.k else self.family


def parse_metric_name(name: str) -> MetricName:
    """Take a metric's name apart.

    Raises:
        ValueError: When there is no such metric; names the nearest one.
    """
    if name == MICRO:
        return MetricName(MICRO, 0)
    family, _, k = name.partition("@")
    if family in _FAMILIES and re.fullmatch(r"[1-9][0-9]{0,5}", k):
        return MetricName(family, int(k))
    raise ValueError(
        f"there is no metric '{name}'{_nearest(name)}; "
        f"known are {', '.join(f'{family}@k' for family in _FAMILIES)} with k from 1, and {MICRO}"
    )


def _nearest(name: str) -> str:
    k = re.search(r"[1-9][0-9]*", name.partition("@")[2]) or re.search(r"[1-9][0-9]*$", name)
    valid = [f"{family}@{k.group() if k else 5}" for family in _FAMILIES] + [MICRO]
    folded = {known.lower(): known for known in valid}
    close = difflib.get_close_matches(name.lower(), folded, cutoff=0.4)
    return f" (did you mean '{folded[close[0]]}'?)" if close else ""
