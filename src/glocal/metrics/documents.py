"""The value of a metric for every document, and over all documents.

Means and ratios of sums share one form: Σ numerators / Σ denominators. For P@k every denominator is
1, which makes it a mean; for PSP@k it is the best attainable gain of the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class DocumentScores:
    """A metric per document; over all documents it is Σ numerators / Σ denominators.

    Attributes:
        numerators: Gain of each document, float64 (n,).
        denominators: Weight of each document, float64 (n,).
    """

    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]

    @classmethod
    def mean(cls, values: ArrayLike) -> DocumentScores:
        """Return scores whose total is the mean of `values`."""
        numerators = np.asarray(values, dtype=np.float64)
        return cls(numerators, np.ones_like(numerators))

    def __post_init__(self) -> None:
        shapes = self.numerators.shape, self.denominators.shape
        if self.numerators.ndim != 1 or shapes[0] != shapes[1]:
            raise ValueError(
                f"numerators and denominators must be vectors of one length, not {shapes}"
            )

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def value(self) -> float:
        """Metric over all documents; NaN if the denominators sum to 0."""
        total = float(self.denominators.sum())
        return float(self.numerators.sum()) / total if total else float("nan")

    def take(self, documents: NDArray[Any]) -> DocumentScores:
        """Return the scores of some documents, given by positions or a mask."""
        return DocumentScores(self.numerators[documents], self.denominators[documents])
