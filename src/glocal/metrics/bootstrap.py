"""Paired bootstrap: is one model better than another on the same documents, and by how much?

- documents are drawn with replacement, the same draw for both models, so that the difficulty of a
  document cancels out;
- works on numerators and denominators, so ratios of sums (PSP, micro-F1) are resampled as ratios;
- documents with equal scores are drawn together as one multinomial with the same distribution: for
  P@k a few dozen groups replace any number of documents;
- memory is bounded by one block of draws, whatever the number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glocal.metrics.documents import DocumentScores

# Counts held at a time: 32 MiB.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class BootstrapResult:
    """The difference a - b of a metric and its uncertainty.

    Attributes:
        difference: Observed difference on the given documents.
        low: Lower end of the percentile interval.
        high: Upper end of the percentile interval.
        p_value: Two-sided p-value: twice the smaller share of draws on one side of zero.
        n: Number of documents.
        value_a: Metric of the first model.
        value_b: Metric of the second model.
        samples: Number of draws.
        confidence: Confidence level of the interval.
    """

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    value_a: float
    value_b: float
    samples: int
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def paired_bootstrap(
    per_document_a: DocumentScores | ArrayLike,
    per_document_b: DocumentScores | ArrayLike,
    *,
    samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> BootstrapResult:
    """Compare two models on the same documents.

    Args:
        per_document_a: Metric per document of the first model; plain values are averaged,
            `DocumentScores` of a ratio metric are resampled as numerators and denominators.
        per_document_b: Metric per document of the second model, same documents in the same order.
        samples: Number of draws.
        seed: Random seed.
        confidence: Confidence level of the interval.

    Raises:
        ValueError: When there are no documents or not the same number.
    """
    a, b = _document_scores(per_document_a), _document_scores(per_document_b)
    if len(a) != len(b) or not len(a):
        raise ValueError(
            f"a paired comparison needs the same documents, at least one, not {len(a)} and {len(b)}"
        )
    if samples < 1 or not 0 < confidence < 1:
        raise ValueError(
            f"samples must be at least 1 and confidence between 0 and 1, "
            f"not {samples} and {confidence}"
        )
    drawn = _draw_differences(a, b, samples, np.random.default_rng(seed))
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    # Adding 1 keeps the p-value above 0, which no finite number of draws can show.
    rarer = min(int(np.count_nonzero(drawn <= 0)), int(np.count_nonzero(drawn >= 0)))
    return BootstrapResult(
        difference=a.value - b.value,
        low=float(low),
        high=float(high),
        p_value=min(1.0, 2 * (1 + rarer) / (1 + samples)),
        n=len(a),
        value_a=a.value,
        value_b=b.value,
        samples=samples,
        confidence=confidence,
    )


def _document_scores(values: DocumentScores | ArrayLike) -> DocumentScores:
    return values if isinstance(values, DocumentScores) else DocumentScores.mean(values)


def _draw_differences(
    a: DocumentScores, b: DocumentScores, samples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    columns = np.stack([a.numerators, a.denominators, b.numerators, b.denominators], axis=1)
    if not np.isfinite(columns).all():
        raise ValueError("the scores of the documents must be finite numbers")
    groups, sizes = np.unique(columns, axis=0, return_counts=True)
    parts = []
    for counts in _draw_counts(sizes, samples, rng):
        sums = counts @ groups  # (draws, 4)
        with np.errstate(invalid="ignore"):  # 0 / 0: a draw without attainable gain scores 0
            ratios = np.nan_to_num(sums[:, [0, 2]] / sums[:, [1, 3]])
        parts.append(ratios[:, 0] - ratios[:, 1])
    differences = np.concatenate(parts)
    # Equal sums may differ in their last bits; treat such a draw as no difference.
    differences[np.abs(differences) < 1e-12] = 0.0
    return differences


def _draw_counts(
    sizes: NDArray[np.int64], samples: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of float64 (draws, groups): how often each group is drawn."""
    n, n_groups = int(sizes.sum()), len(sizes)
    # A multinomial costs one binomial per group, more than one integer per document.
    grouped = n_groups * 8 < n
    block = max(1, _BLOCK // (n_groups if grouped else n))
    group_of = np.repeat(np.arange(n_groups), sizes)
    for start in range(0, samples, block):
        draws = min(block, samples - start)
        if grouped:
            yield rng.multinomial(n, sizes / n, size=draws).astype(np.float64)
        else:
            drawn = group_of[rng.integers(n, size=(draws, n))]
            drawn += np.arange(draws)[:, None] * n_groups
            counts = np.bincount(drawn.ravel(), minlength=draws * n_groups)
            yield counts.reshape(draws, n_groups).astype(np.float64)
