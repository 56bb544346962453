"""A calibration for the whole range of scores: a monotone curve from log-odds to log-odds.

The curve is linear between knots. Its heights minimise the log loss over all (document, label)
pairs of held-out documents, so that near every knot, and in all, the probabilities sum to the
number of gold labels. The curve rises everywhere, which keeps the order of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats
from glocal.log_odds import sigmoid

_FEWEST_HITS = 20  # gold labels between neighbouring knots, so that their heights mean something
_MOST_KNOTS = 30
_BIN = 0.01  # width of the bins of log-odds that are distinguished
_RANK_SLOPES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
_STEP = 0.5  # distance of knots in observed log-odds
_LEAST_SLOPE = 0.02  # the curve rises at least this much per unit of log-odds
_PRIOR = 0.25  # pull of each height towards leaving scores as they are
_SMOOTHNESS = 1.0  # penalty on bends, in units of the log loss of one pair
_NEWTON_STEPS = 60
_ENOUGH_HITS, _LARGEST_SHIFT = 50, 0.5  # for a last correction of the sum of probabilities


@dataclass(frozen=True)
class CalibrationCurve:
    """A rising, piecewise linear function of log-odds.

    Attributes:
        knots: Log-odds of the model, rising.
        heights: Calibrated log-odds at the knots, rising.
        rank_slope: Factor of ln(rank), which is subtracted from the log-odds first. Of two labels
            with one score, the one that ranks higher in its document is more often right.
    """

    knots: tuple[float, ...]
    heights: tuple[float, ...]
    rank_slope: float = 0.0

    def __post_init__(self) -> None:
        x, y = np.array(self.knots), np.array(self.heights)
        rising = len(x) == len(y) >= 2 and bool((np.diff(x) > 0).all() and (np.diff(y) > 0).all())
        if not rising or not np.isfinite([*x, *y]).all() or not self.rank_slope >= 0:
            raise ValueError(f"a calibration needs rising knots and heights, not {self}")

    def __call__(
        self, log_odds: NDArray[np.floating], ranks: NDArray[np.floating] | float = 1.0
    ) -> Floats:
        """Return calibrated log-odds; the first and last piece go on in their direction.

        Args:
            log_odds: Log-odds of the model.
            ranks: Rank of each label in its document, from 1.
        """
        x, y = np.array(self.knots), np.array(self.heights)
        values = np.asarray(log_odds, dtype=np.float64) - self.rank_slope * np.log(ranks)
        place = np.clip(np.searchsorted(x, values) - 1, 0, len(x) - 2)
        slope = np.diff(y) / np.diff(x)
        return np.asarray(y[place] + slope[place] * (values - x[place]))

    def to_mapping(self) -> dict[str, Any]:
        """Return the values to store."""
        curve = {"knots": list(self.knots), "heights": list(self.heights)}
        return {**curve, "rank_slope": self.rank_slope}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CalibrationCurve:
        """Build a curve from stored values."""
        return cls(
            tuple(map(float, mapping["knots"])),
            tuple(map(float, mapping["heights"])),
            float(mapping["rank_slope"]),
        )


def fit_curve(
    log_odds: NDArray[np.floating],
    hits: NDArray[np.floating],
    weights: NDArray[np.floating] | None = None,
    ranks: NDArray[np.floating] | None = None,
) -> CalibrationCurve | None:
    """Fit the curve with the smallest log loss.

    Args:
        log_odds: Log-odds of (document, label) pairs, (n,).
        hits: Whether each is gold, or the share of pairs of the same log-odds that are, (n,).
        weights: Number of pairs each entry represents, (n,); 1 by default.
        ranks: Rank of each label in its document, (n,); without them ranks make no difference.

    Returns:
        None if nothing can be learnt: no pair is gold, or every one is.
    """
    x = np.asarray(log_odds, dtype=np.float64)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
    gold = np.asarray(hits, dtype=np.float64) * w
    if not 0 < gold.sum() < w.sum():
        return None
    if ranks is None:
        return _fit(x, gold, w, 0.0)[0]
    log_ranks = np.log(np.asarray(ranks, dtype=np.float64))
    fits = [_fit(x - slope * log_ranks, gold, w, slope) for slope in _RANK_SLOPES]
    return min(fits, key=lambda fit: fit[1])[0]


def _fit(
    x: Floats, gold: Floats, weights: Floats, rank_slope: float
) -> tuple[CalibrationCurve, float]:
    """Return the best curve for log-odds that ranks are already subtracted from, and its loss."""
    x, gold, weights = summed_pairs(x, gold, weights)
    knots = _knots(x, gold, weights)
    basis = _hats(x, knots)
    heights = _heights(knots, basis, gold, weights)
    logits = basis @ heights
    # A slope has to gain something: a handful of documents must not decide for one.
    loss = float(weights @ np.logaddexp(0.0, logits) - gold @ logits) + 2.0 * (rank_slope > 0)
    return CalibrationCurve(tuple(knots.tolist()), tuple(heights.tolist()), rank_slope), loss


def summed_pairs(x: Floats, gold: Floats, weights: Floats) -> tuple[Floats, ...]:
    """Sum up pairs of nearly equal log-odds: mean log-odds, gold and weight of each bin."""
    _, place = np.unique(np.round(x / _BIN), return_inverse=True)
    totals = (np.bincount(place, values) for values in (weights * x, gold, weights))
    odds, hits, sums = (np.asarray(total, dtype=np.float64) for total in totals)
    return odds / sums, hits, sums


def _knots(x: Floats, gold: Floats, weights: Floats) -> Floats:
    """Place knots at even steps of the observed log-odds, each piece with enough gold labels.

    Even steps along the scores would be too coarse where the share of gold labels rises steeply.
    """
    order = np.argsort(x, kind="stable")
    x, gold, weights = x[order], gold[order], weights[order]
    rates = np.clip(_isotonic(gold / weights, weights), 1e-9, 1 - 1e-9)
    level = np.floor(np.log(rates / (1.0 - rates)) / _STEP)
    starts = np.flatnonzero(np.diff(level, prepend=level[0] - 1) > 0)
    sums = np.concatenate([[0.0], np.cumsum(gold)])
    enough = max(_FEWEST_HITS, sums[-1] / _MOST_KNOTS / 4)
    kept = [0]
    for start in starts[1:]:
        if sums[start] - sums[kept[-1]] >= enough and x[start] > x[kept[-1]]:
            kept.append(int(start))
    while len(kept) > 1 and sums[-1] - sums[kept[-1]] < enough:
        kept.pop()
    knots = [*x[kept].tolist(), float(x[-1])]
    if knots[-1] <= knots[-2]:
        knots[-1] = knots[-2] + 1.0
    return np.array(knots)


def _isotonic(values: Floats, weights: Floats) -> Floats:
    """Return the rising sequence nearest to the values (pool adjacent violators)."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(values, weights=weights).x)


def _hats(x: Floats, knots: Floats) -> Floats:
    """Return the weight of each knot's height at each x, (n, knots)."""
    place = np.clip(np.searchsorted(knots, x) - 1, 0, len(knots) - 2)
    share = (x - knots[place]) / np.diff(knots)[place]
    basis = np.zeros((len(x), len(knots)))
    rows = np.arange(len(x))
    basis[rows, place] = 1.0 - share
    basis[rows, place + 1] = share
    return basis


def _heights(knots: Floats, basis: Floats, gold: Floats, weights: Floats) -> Floats:
    """Minimise the log loss over the heights by Newton's method, then make them rise."""
    near_gold, near = basis.T @ gold, basis.T @ weights
    rates = (near_gold + 0.5) / (near + 1.0)
    heights = np.log(rates / (1.0 - rates))
    bend = _bends(knots)
    best, step = np.inf, np.zeros(len(knots))
    for _ in range(_NEWTON_STEPS):
        logits = basis @ heights
        bending = bend @ heights
        away = heights - knots
        value = float(weights @ np.logaddexp(0.0, logits) - gold @ logits)
        value += float(_SMOOTHNESS * bending @ bending + _PRIOR * away @ away)
        if value > best:  # too far: take half of the last step back
            step /= 2
            heights = heights - step
            continue
        if best - value < 1e-9 * value:
            break
        best = value
        p = sigmoid(logits)
        gradient = basis.T @ (weights * p - gold)
        gradient += 2 * _SMOOTHNESS * bend.T @ bending + 2 * _PRIOR * away
        curvature = (basis * (weights * p * (1.0 - p))[:, None]).T @ basis
        curvature += 2 * _SMOOTHNESS * bend.T @ bend + 2 * _PRIOR * np.eye(len(knots))
        step = np.asarray(-np.linalg.solve(curvature, gradient))
        heights = heights + step
    # The nearest rising heights, each as firm as the pairs around it make it.
    p = sigmoid(basis @ heights)
    firmness = basis.T @ (weights * p * (1.0 - p)) + 1e-9
    least = _LEAST_SLOPE * (knots - knots[0])
    rising = _isotonic(heights - least, firmness) + least
    return np.asarray(rising + _shift(basis @ rising, float(gold.sum()), weights))


def _shift(logits: Floats, total: float, weights: Floats) -> float:
    """Return the shift of all log-odds that makes the probabilities sum to the gold labels."""
    if total < _ENOUGH_HITS:
        return 0.0
    from scipy.optimize import brentq

    def surplus(shift: float) -> float:
        return float(weights @ sigmoid(logits + shift) - total)

    low, high = -_LARGEST_SHIFT, _LARGEST_SHIFT
    return float(brentq(surplus, low, high)) if surplus(low) < 0 < surplus(high) else 0.0


def _bends(knots: Floats) -> Floats:
    """Return the matrix that gives the change of slope at each inner knot from the heights."""
    widths = np.diff(knots)
    matrix = np.zeros((max(len(knots) - 2, 0), len(knots)))
    for row in range(len(matrix)):
        left, right = 1.0 / widths[row], 1.0 / widths[row + 1]
        matrix[row, row : row + 3] = left, -left - right, right
    return matrix * np.minimum(widths[:-1], widths[1:])[:, None] if len(matrix) else matrix
