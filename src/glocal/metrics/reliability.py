"""Expected calibration error: how far probabilities are from observed frequencies.

Scores fall into bins of equal width; the error is the mean over scores of
|mean score - share that is gold| of their bin. The result includes bins and population, without
which the number cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RANGES = ((0.001, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 1.0))


@dataclass(frozen=True, eq=False)
class CalibrationError:
    """Expected calibration error and the reliability diagram behind it.

    Attributes:
        value: The error, between 0 and 1; NaN without scores.
        bins: Number of bins of equal width on [0, 1].
        n: Number of scores.
        counts: Number of scores in each bin.
        confidence: Mean score of each bin; 0 for an empty bin.
        accuracy: Share of each bin's scores that is gold; 0 for an empty bin.
    """

    value: float
    bins: int
    n: int
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]


@dataclass(frozen=True)
class ScoreRange:
    """Probabilities of one range against what was observed.

    Attributes:
        low: Lowest probability of the range.
        high: Highest probability; it belongs to the next range, except 1.
        n: Number of predictions in the range.
        mean: Their mean probability; NaN without any.
        observed: Share of them that is gold; NaN without any.
    """

    low: float
    high: float
    n: int
    mean: float
    observed: float


@dataclass(frozen=True)
class LabelSums:
    """Number of labels of a document: expected by its probabilities, and observed.

    Attributes:
        expected: Sum of the probabilities of all labels, mean over the documents.
        observed: Gold labels that the model knows, mean over the documents.
        n_documents: Number of documents.
    """

    expected: float
    observed: float
    n_documents: int


def score_ranges(scores: NDArray[np.floating], hits: NDArray[np.bool_]) -> list[ScoreRange]:
    """Compare probabilities with outcomes in ranges from 0.001 to 1.

    Args:
        scores: Probabilities of any shape; those below 0.001 are ignored.
        hits: Whether each is gold, same shape.
    """
    found = []
    for low, high in _RANGES:
        inside = (scores >= low) & ((scores < high) | (high == 1.0))
        n = int(np.count_nonzero(inside))
        mean = float(scores[inside].mean(dtype=np.float64)) if n else float("nan")
        observed = float(hits[inside].mean()) if n else float("nan")
        found.append(ScoreRange(low, high, n, mean, observed))
    return found


def expected_calibration_error(
    scores: NDArray[np.floating], hits: NDArray[np.bool_], *, bins: int = 15
) -> CalibrationError:
    """Compare probabilities with outcomes, bin by bin.

    Args:
        scores: Probabilities of any shape, without empty slots.
        hits: Whether each is gold, same shape.
        bins: Number of bins of equal width; a bin includes its lower edge.
    """
    if scores.shape != hits.shape:
        raise ValueError(f"scores {scores.shape} and hits {hits.shape} must have one shape")
    values = np.asarray(scores, dtype=np.float64).ravel()
    # Written so that NaN is refused too.
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError("scores must be probabilities between 0 and 1 to have a calibration error")
    places = np.minimum((values * bins).astype(np.int64), bins - 1)
    counts = np.bincount(places, minlength=bins)
    filled = np.maximum(counts, 1)
    confidence = np.bincount(places, weights=values, minlength=bins) / filled
    accuracy = np.bincount(places, weights=hits.ravel(), minlength=bins) / filled
    n = len(values)
    error = float(counts @ np.abs(confidence - accuracy) / n) if n else float("nan")
    return CalibrationError(error, bins, n, counts, confidence, accuracy)
