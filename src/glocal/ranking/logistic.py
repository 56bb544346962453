"""Logistic regression with a prior: how calibrations and experts' weights are fitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from glocal.arrays import Floats
from glocal.log_odds import sigmoid


def fit_logistic(
    features: Floats,
    outcomes: Floats,
    *,
    start: Floats,
    prior: ArrayLike,
    bounds: Sequence[tuple[float | None, float | None]],
    penalty: ArrayLike,
) -> list[float]:
    """Return the parameters with the smallest mean log loss, penalised.

    Args:
        features: (entries, parameters).
        outcomes: (entries,) 0 or 1.
        start: (parameters,) the values that the prior pulls towards.
        prior: Strength of that pull for each parameter, as the log loss of this many entries.
        bounds: Lowest and highest value of each parameter.
        penalty: Weight of each parameter's square, whatever the number of entries.
    """
    from scipy.optimize import minimize

    pull = np.asarray(prior, np.float64) / len(outcomes)
    ridge = np.asarray(penalty, np.float64)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        value, gradient = log_loss(parameters, features, outcomes)
        away = parameters - start
        penalties = (pull * away) @ away + (ridge * parameters) @ parameters
        return value + float(penalties), gradient + 2 * (pull * away + ridge * parameters)

    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return [float(value) for value in found.x]


def log_loss(parameters: Floats, features: Floats, outcomes: Floats) -> tuple[float, Floats]:
    """Return the mean log loss of a logistic regression, and its gradient."""
    logits = features @ parameters
    value = (np.logaddexp(0.0, logits).sum() - outcomes @ logits) / len(outcomes)
    return value, features.T @ ((sigmoid(logits) - outcomes) / len(outcomes))
