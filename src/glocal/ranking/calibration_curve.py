"""A calibration for the whole range of scores: a monotone curve from log-odds to log-odds.

The curve is linear between knots. Its heights minimise the log loss over all (document, label)
pairs of held-out documents, so that near every knot, and in all, the probabilities sum to the
number of gold labels. The curve rises everywhere, which keeps the order of labels.

A label's rank in its document also counts: of two labels with one score, the one that ranks higher
is more often right. How much depends on the score, so every knot has a factor for the logarithm of
the rank, beyond the usual one of labels with this score; they are fitted together with the curve.
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
_STEP = 0.5  # distance of knots in observed log-odds
_LEAST_SLOPE = 0.02  # the curve rises at least this much per unit of log-odds
_PRIOR = 0.25  # pull of each height towards leaving scores as they are
_SMOOTHNESS = 1.0  # penalty on bends, in units of the log loss of one pair
_RANK_PRIOR = 1.0  # pull of each effect of a rank towards none
_NEWTON_STEPS = 60
_ROWS = ("knots", "heights", "rank_slopes", "usual_ranks")  # values of a curve, one for each knot
_ENOUGH_HITS, _LARGEST_SHIFT = 50, 0.5  # for a last correction of the sum of probabilities


@dataclass(frozen=True)
class CalibrationCurve:
    """A rising, piecewise linear function of log-odds.

    Attributes:
        knots: Log-odds of the model, rising.
        heights: Calibrated log-odds at the knots, rising.
        rank_slopes: Factors of ln(rank), beyond the usual one, at the knots, not below 0; the
            product is subtracted from the calibrated log-odds. Empty where ranks do not count.
        usual_ranks: The mean ln(rank) of labels near each knot.
        rank_slope: Factor of ln(rank), which is subtracted from the model's log-odds; models of
            earlier versions have it instead.
    """

    knots: tuple[float, ...]
    heights: tuple[float, ...]
    rank_slopes: tuple[float, ...] = ()
    usual_ranks: tuple[float, ...] = ()
    rank_slope: float = 0.0

    def __post_init__(self) -> None:
        x, y, by_rank = np.array(self.knots), np.array(self.heights), self.rank_slopes
        means = self.usual_ranks
        rising = len(x) == len(y) >= 2 and bool((np.diff(x) > 0).all() and (np.diff(y) > 0).all())
        if not rising or not np.isfinite([*x, *y]).all() or not self.rank_slope >= 0:
            raise ValueError(f"a calibration needs rising knots and heights, not {self}")
        complete = len(by_rank) == len(means) and len(means) in (0, len(x))
        negative = any(slope < 0 for slope in by_rank)
        if not complete or not np.isfinite([*by_rank, *means]).all() or negative:
            raise ValueError(f"each knot needs a rank and its slope, which is not below 0: {self}")

    def __call__(
        self, log_odds: NDArray[np.floating], ranks: NDArray[np.floating] | float = 1.0
    ) -> Floats:
        """Return calibrated log-odds; the first and last piece go on in their direction.

        Args:
            log_odds: Log-odds of the model.
            ranks: Rank of each label in its document, from 1.
        """
        x, y = np.array(self.knots), np.array(self.heights)
        values = log_odds - self.rank_slope * np.log(ranks)
        place = np.clip(np.searchsorted(x, values) - 1, 0, len(x) - 2)
        slope = np.diff(y) / np.diff(x)
        found = y[place] + slope[place] * (values - x[place])
        if self.rank_slopes:
            usual = np.interp(values, x, self.usual_ranks)
            found = found - np.interp(values, x, self.rank_slopes) * (np.log(ranks) - usual)
        return np.asarray(found)

    def to_mapping(self) -> dict[str, Any]:
        """Return the values to store."""
        rows = {name: list(getattr(self, name)) for name in _ROWS}
        return {**rows, "rank_slope": self.rank_slope}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CalibrationCurve:
        """Build a curve from stored values."""
        knots, heights, slopes, usual = (tuple(map(float, mapping.get(name, ()))) for name in _ROWS)
        return cls(knots, heights, slopes, usual, float(mapping["rank_slope"]))


def fit_curve(
    log_odds: Floats, hits: Floats, weights: Floats, ranks: Floats
) -> CalibrationCurve | None:
    """Fit the curve with the smallest log loss.

    Args:
        log_odds: Log-odds of (document, label) pairs, (n,).
        hits: Whether each is gold, or the share of pairs of the same log-odds that are, (n,).
        weights: Number of pairs each entry represents, (n,).
        ranks: Rank of each label in its document, (n,).

    Returns:
        None if nothing can be learnt: no pair is gold, or every one is.
    """
    gold = hits * weights
    if not 0 < gold.sum() < weights.sum():
        return None
    knots = _knots(*summed_pairs(log_odds, gold, weights))
    return _fit(knots, _hats(log_odds, knots), gold, weights, np.log(ranks))


def _fit(
    knots: Floats, basis: Floats, gold: Floats, weights: Floats, log_ranks: Floats
) -> CalibrationCurve:
    """Return the curve with the best heights and the best effects of ranks.

    Args:
        knots: The knots, (k,).
        basis: Weight of each knot's height at each pair, (n, k).
        gold: Gold labels among the pairs, (n,).
        weights: Number of pairs, (n,).
        log_ranks: Logarithm of the rank of each, (n,).
    """
    count, near = len(knots), basis.T @ weights
    means = basis.T @ (weights * log_ranks) / np.maximum(near, 1e-9)
    columns = np.concatenate([basis, basis * (basis @ means - log_ranks)[:, None]], axis=1)
    bends = np.diff(np.eye(count), 2, axis=0)
    penalty = np.zeros((2 * count, 2 * count))
    penalty[:count, :count] = _height_penalty(knots)
    penalty[count:, count:] = _SMOOTHNESS * bends.T @ bends + _RANK_PRIOR * np.eye(count)
    usual = np.concatenate([knots, np.zeros(count)])
    rates = (basis.T @ gold + 0.5) / (near + 1.0)
    start = usual.copy()
    start[:count] = np.log(rates / (1.0 - rates))
    used = np.ones(len(usual), dtype=bool)
    found = np.zeros(len(usual))
    while True:
        found[used] = _minimise(
            columns[:, used],
            gold,
            weights,
            penalty=penalty[np.ix_(used, used)],
            usual=usual[used],
            start=start[used],
        )
        negative = (found < 0) & (np.arange(len(found)) >= count)
        if not negative.any():
            break
        # It would raise labels for ranking lower: it is set to 0 and the rest fitted again.
        found[negative], used = 0.0, used & ~negative
    # The nearest rising heights, each as firm as the pairs around it make it.
    p = sigmoid(columns @ found)
    firmness = basis.T @ (weights * p * (1.0 - p)) + 1e-9
    least = _LEAST_SLOPE * (knots - knots[0])
    found[:count] = _isotonic(found[:count] - least, firmness) + least
    heights = found[:count] + _shift(columns @ found, float(gold.sum()), weights)
    slopes = found[count:].tolist()
    return CalibrationCurve(
        tuple(knots.tolist()), tuple(heights.tolist()), tuple(slopes), tuple(means.tolist())
    )


def summed_pairs(x: Floats, gold: Floats, weights: Floats) -> tuple[Floats, ...]:
    """Sum up pairs of nearly equal log-odds: mean log-odds, gold and weight of each bin."""
    _, place = np.unique(np.round(x / _BIN), return_inverse=True)
    totals = (np.bincount(place, values) for values in (weights * x, gold, weights))
    odds, hits, sums = (np.asarray(total, dtype=np.float64) for total in totals)
    return odds / sums, hits, sums


def _knots(x: Floats, gold: Floats, weights: Floats) -> Floats:
    """Place knots at even steps of the observed log-odds, each piece with enough gold labels.

    Even steps along the scores would be too coarse where the share of gold labels rises steeply.

    Args:
        x: Log-odds, rising, (n,).
        gold: Gold labels at each of them, (n,).
        weights: Number of pairs, (n,).
    """
    rates = np.clip(_isotonic(gold / weights, weights), 1e-9, 1 - 1e-9)
    level = np.floor(np.log(rates / (1.0 - rates)) / _STEP)
    sums = np.concatenate([[0.0], np.cumsum(gold)])
    enough = max(_FEWEST_HITS, sums[-1] / _MOST_KNOTS / 4)
    kept = [0]
    for start in np.flatnonzero(np.diff(level) > 0) + 1:
        if sums[start] - sums[kept[-1]] >= enough:
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


def _height_penalty(knots: Floats) -> Floats:
    """Return the quadratic form of bends and of the distance from leaving scores as they are."""
    bends = _bends(knots)
    # Leaving scores as they are has no bends, so both may be taken of the distance to it.
    return _SMOOTHNESS * bends.T @ bends + _PRIOR * np.eye(len(knots))


def _minimise(
    columns: Floats,
    gold: Floats,
    weights: Floats,
    *,
    penalty: Floats,
    usual: Floats,
    start: Floats,
) -> Floats:
    """Minimise log loss and penalty over the coefficients of the columns, by Newton's method."""

    def value(coefficients: Floats) -> float:
        logits, away = columns @ coefficients, coefficients - usual
        return float(weights @ np.logaddexp(0.0, logits) - gold @ logits + away @ penalty @ away)

    found, best = start, value(start)
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(columns @ found)
        gradient = columns.T @ (weights * p - gold) + 2 * penalty @ (found - usual)
        curvature = (columns * (weights * p * (1.0 - p))[:, None]).T @ columns + 2 * penalty
        step = np.asarray(-np.linalg.solve(curvature, gradient))
        after = value(found + step)
        while after > best and np.abs(step).max() > 1e-9:  # too far
            step /= 2
            after = value(found + step)
        gained, found, best = best - after, found + step, after
        if gained < 1e-9 * abs(after):
            break
    return np.asarray(found)


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
    slopes = np.diff(np.eye(len(knots)), axis=0) / widths[:, None]
    return np.diff(slopes, axis=0) * np.minimum(widths[:-1], widths[1:])[:, None]
