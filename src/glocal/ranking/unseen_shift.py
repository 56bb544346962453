"""The constant of labels without training texts in the combination of experts.

Weights, bias and calibration are learnt on labels that experts have seen; labels without training
texts come by their names, whose evidence means something else. One constant for all of them makes
their calibrated probabilities sum to the number of gold labels among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glocal.arrays import Ints
from glocal.log_odds import log_odds, sigmoid
from glocal.metrics.ranking import judge
from glocal.ranking.calibration import Calibration
from glocal.ranking.predictions import Predictions

_LARGEST = 3.0
_STEPS = 20
_CLIP = (1e-7, 1.0 - 1e-7)
_FEW_GOLD = 5  # gold labels at which half of the shift is taken


def fit_unseen_shift(
    predictions: Predictions, gold: Any, counts: Ints, calibration: Calibration
) -> float:
    """Return the log-odds to add to labels without a training text.

    Args:
        predictions: Best labels of held-out documents, not calibrated.
        gold: Sparse (documents, columns ≥ labels); documents without gold are skipped.
        counts: (L,) training texts of every label.
        calibration: The calibration of all labels.

    Returns:
        The shift; 0 where no such label is gold.
    """
    judged = judge(predictions.indices, gold)
    scores = predictions.scores[judged.gold.kept]
    unseen = (judged.indices >= 0) & (np.asarray(counts)[judged.indices] == 0)
    rows = unseen.any(axis=1)
    unseen, scores = unseen[rows], scores[rows]
    n_gold = int(judged.hits[rows][unseen].sum())
    if not n_gold:
        return 0.0
    odds = log_odds(scores, _CLIP)

    def expected(shift: float) -> float:
        shifted = np.where(unseen, sigmoid(odds + shift), scores).astype(np.float32)
        order = np.argsort(-shifted, kind="stable")  # the rank counts too
        calibrated = calibration(np.take_along_axis(shifted, order, 1))
        return float(calibrated[np.take_along_axis(unseen, order, 1)].sum())

    low, high = -_LARGEST, _LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < n_gold else (low, middle)
    return round((low + high) / 2 * n_gold / (n_gold + _FEW_GOLD), 6)
