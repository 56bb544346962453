"""Combine experts and models by their saved scores: fitted on dev, measured on test.

Three ways, each over the labels that any model has saved for a text:

- `weights`: every expert of every model gets a weight of its own, as in a model with several
  experts; the weights, the frequency term and the bias are fitted on dev;
- `members`: experts of the same name are averaged over the models first, as in the recipe `best`;
- `mean`: the probabilities of all experts of all models are averaged, and nothing is fitted
  (GlocalXML Eq. 7 and its ensembles of several encoders).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats, Floats32, Ints
from glocal.errors import ConfigError
from glocal.lab.saved_scores import SavedScores
from glocal.log_odds import log_odds, sigmoid
from glocal.predict.evaluation import COMBINED, EvaluationReport
from glocal.ranking.combination import Combination, fit_weights
from glocal.ranking.pool import LOWEST_AND_HIGHEST, Pool, distinct_labels, log_counts
from glocal.ranking.predictions import Predictions

WAYS = ("weights", "members", "mean")


@dataclass(frozen=True)
class Combined:
    """The outcome of a combination.

    Attributes:
        combination: The fitted weights; without any, probabilities were averaged.
        dev: Scores on dev. Those of fitted weights are a little too good: dev has chosen them.
        test: Scores on test; None without test.
        scores: The combined probabilities, on test where there is one, as those of one expert.
    """

    combination: Combination
    dev: EvaluationReport
    test: EvaluationReport | None
    scores: SavedScores


def combine(
    dev: Sequence[SavedScores],
    test: Sequence[SavedScores] = (),
    *,
    way: str = "weights",
    experts: Sequence[str] | None = None,
    ks: Sequence[int] = (1, 3, 5),
) -> Combined:
    """Fit a combination of models on dev, and score it on dev and test.

    Args:
        dev: The models' scores on dev.
        test: Their scores on test, in the same order.
        way: `weights`, `members` or `mean`.
        experts: Names of the experts to use; by default all.
        ks: Cut-offs of the metrics.

    Raises:
        ConfigError: The files do not fit together, or there is nothing to fit.
    """
    if way not in WAYS:
        raise ConfigError(f"the way must be one of {', '.join(WAYS)}, not '{way}'")
    if test and len(test) != len(dev):
        raise ConfigError(
            f"{len(dev)} files with scores on dev, but {len(test)} on test; give one of each per "
            "model, in the same order"
        )
    for one, other in zip(dev, test, strict=False):
        if one.experts != other.experts:
            raise ConfigError(
                f"the scores on dev are of the experts {', '.join(one.experts)}, those on test "
                f"of {', '.join(other.experts)}; give the files in the same order"
            )
    pool = _joined_pool(dev, way, experts)
    fitted = Combination() if way == "mean" else fit_weights(pool, dev[0].gold)
    if fitted is None:
        raise ConfigError("there is nothing to fit: no saved label of dev is gold, or every one is")
    last, combined = dev[0], _combined(pool, fitted, dev[0].counts)
    report, tested = _report(pool, combined, last, ks), None
    if test:
        if test[0].label_ids != dev[0].label_ids:
            raise ConfigError("the scores on dev and on test belong to different label spaces")
        last, pool = test[0], _joined_pool(test, way, experts)
        combined = _combined(pool, fitted, last.counts)
        tested = _report(pool, combined, last, ks)
    odds = log_odds(combined, LOWEST_AND_HIGHEST).astype(np.float32)
    scores = replace(last, experts=[COMBINED], labels=pool.labels, log_odds=odds[..., None])
    return Combined(fitted, report, tested, scores)


def mean_probabilities(saved: SavedScores) -> Predictions:
    """Return the labels by the mean of the experts' probabilities."""
    return _best(saved.labels, sigmoid(saved.log_odds.astype(np.float64)).mean(axis=-1))


def _best(labels: Ints, probabilities: NDArray[np.floating]) -> Predictions:
    """Sort labels (n, m), −1 for none, by their probabilities."""
    return Predictions.from_unsorted(labels, np.where(labels >= 0, probabilities, -np.inf))


def _combined(pool: Pool, combination: Combination, counts: Ints) -> Floats32:
    """Return the combined probabilities of the pooled labels, (n, m)."""
    logits = {name: pool.log_odds[..., place] for place, name in enumerate(pool.names)}
    return combination.of_arrays(logits, counts[np.maximum(pool.labels, 0)])


def _joined_pool(files: Sequence[SavedScores], way: str, experts: Sequence[str] | None) -> Pool:
    """Return the experts' log-odds at the labels that any of the models has saved."""
    check_same_texts(files)
    labels = distinct_labels(np.concatenate([file.labels for file in files], axis=1))
    columns: dict[str, list[Floats]] = {}
    for number, file in enumerate(files, start=1):
        values = file.at(labels)
        for place, name in enumerate(file.experts):
            if experts is None or name in experts:
                apart = way != "members" and len(files) > 1
                columns.setdefault(f"{number}:{name}" if apart else name, []).append(
                    values[..., place]
                )
    if not columns:
        known = dict.fromkeys(name for file in files for name in file.experts)
        raise ConfigError(
            f"none of the experts {', '.join(experts or [])} is in the files, which have "
            f"{', '.join(known)}"
        )
    means = np.stack([np.mean(found, axis=0) for found in columns.values()], axis=-1)
    return Pool(labels, list(columns), means, log_counts(labels, files[0].counts))


def check_same_texts(files: Sequence[SavedScores]) -> None:
    """Check that saved scores are of the same texts and labels.

    Raises:
        ConfigError: They are not, or there are none.
    """
    if not files:
        raise ConfigError("there are no saved scores to combine")
    first = files[0]
    for number, file in enumerate(files[1:], start=2):
        if file.label_ids != first.label_ids:
            raise ConfigError(f"file {number} belongs to another label space than the first")
        if len(file) != len(first) or not _same_gold(file, first):
            raise ConfigError(f"file {number} holds the scores of other texts than the first")


def _same_gold(one: SavedScores, other: SavedScores) -> bool:
    parts = ("indptr", "indices")
    return all(np.array_equal(getattr(one.gold, p), getattr(other.gold, p)) for p in parts)


def _report(
    pool: Pool, combined: Floats32, scores: SavedScores, ks: Sequence[int]
) -> EvaluationReport:
    alone = {
        name: _best(pool.labels, sigmoid(pool.log_odds[..., place]))
        for place, name in enumerate(pool.names)
    }
    return scores.evaluate(replace(_best(pool.labels, combined), experts=alone), ks)
