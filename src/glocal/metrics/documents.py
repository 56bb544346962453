"""A metric's value for every document, and what it comes to over all of them.

Means and ratios of sums have one form here: numerators over denominators, summed. For P@k every
denominator is 1, which makes it a mean; for PSP@k it is the best attainable gain of the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["DocumentScores"]


@dataclass(frozen=True, eq=False)
class DocumentScores:
    """A metric per document; over all documents it is Σ numerators / Σ denominators.

    Attributes:
        numerators: What each document gained, float64 (n,).
        denominators: What each document counts, float64 (n,).
    """

    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]

    @classmethod
    def mean(cls, values: ArrayLike) -> DocumentScores:
        """Scores whose total is the mean of `values`."""
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
        """The metric over all documents; not a number when nothing was there to gain."""
        total = float(self.denominators.sum())
        return float(self.numerators.sum()) / total if total else float("nan")

    def take(self, documents: NDArray[Any]) -> DocumentScores:
        """The scores of some documents, by positions or by a mask."""
        return DocumentScores(self.numerators[documents], self.denominators[documents])
