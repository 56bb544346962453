"""Predictions compared with gold: one metric by its name, and the comparison of two models.

What several metrics share (the hits of a set of predictions, the best attainable gains of the gold
labels) is computed once per `Scorer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats
from glocal.errors import ConfigError, DataError
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
from glocal.metrics.documents import DocumentScores
from glocal.metrics.gold import Gold, best_weights, prepare_gold
from glocal.metrics.macro import label_counts, macro_scores
from glocal.metrics.metric_names import MACRO, RANKING, WEIGHTED, MetricName, parse_metric_name
from glocal.metrics.propensity import Weighted, inverse_propensity, weigh
from glocal.metrics.ranking import Judged, judge
from glocal.metrics.threshold import micro_scores
from glocal.ranking.predictions import Predictions

# Rows looked at together when predictions are checked.
_ROWS = 1 << 16


@dataclass(frozen=True)
class Propensity:
    """Constants of the propensity model (Jain et al. 2016)."""

    a: float = 0.55
    b: float = 1.5


def check_metric_name(name: str) -> MetricName:
    """Parse a metric's name; an unknown one is a `ConfigError` with the nearest valid one."""
    try:
        return parse_metric_name(name)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def metric_value(
    name: str,
    predictions: Predictions,
    gold: Any,
    *,
    counts: NDArray[np.integer] | None = None,
    n_train: int | None = None,
    threshold: float = 0.5,
) -> float:
    """Return one metric by its name; larger is better for all of them.

    Args:
        name: Such as `P@5`, `nDCG@3`, `PSP@1`, `macro-F@5` (over all labels) or `micro-F1`.
        predictions: Predictions for all documents.
        gold: Sparse (documents, columns ≥ labels), or prepared gold.
        counts: Number of training texts of each label, for PSP and PSnDCG.
        n_train: Number of training texts, for the same.
        threshold: Lowest score that counts for micro-F1.

    Raises:
        ConfigError: For an unknown name; the message has the nearest valid one.
        DataError: When predictions and gold do not fit together or no document has gold.
    """
    metric = check_metric_name(name)
    scorer = Scorer(gold, depth=metric.k, counts=counts, n_train=n_train)
    if metric.family in MACRO:
        macro = macro_scores(label_counts(scorer.judge(predictions), metric.k))
        return float(getattr(macro, MACRO[metric.family]))
    return scorer.document_scores(metric, predictions, threshold=threshold).value


def compare(
    a: Predictions,
    b: Predictions,
    gold: Any,
    metric: str = "P@5",
    *,
    counts: NDArray[np.integer] | None = None,
    n_train: int | None = None,
    threshold: float = 0.5,
    samples: int = 10_000,
    seed: int = 0,
) -> BootstrapResult:
    """Compare two models on the same documents by a paired bootstrap.

    Args:
        a: Predictions of the first model.
        b: Predictions of the second, in the same label space.
        gold: Sparse (documents, columns ≥ labels), or prepared gold.
        metric: Any but the macro ones, which are not made of documents.
        counts: Number of training texts of each label, for PSP and PSnDCG.
        n_train: Number of training texts, for the same.
        threshold: Lowest score that counts for micro-F1.
        samples: Number of bootstrap samples.
        seed: Random seed of the samples.

    Returns:
        The difference a - b with its interval and p-value.
    """
    name = check_metric_name(metric)
    if name.family in MACRO:
        raise ConfigError(
            f"'{metric}' averages over labels and cannot be compared document by document; "
            f"take another metric, such as 'PSP@{name.k}'"
        )
    scorer = Scorer(gold, depth=name.k, counts=counts, n_train=n_train)
    first = scorer.document_scores(name, a, threshold=threshold)
    second = scorer.document_scores(name, b, threshold=threshold)
    return paired_bootstrap(first, second, samples=samples, seed=seed)


class Scorer:
    """Gold labels and label counts, to compare any number of predictions with.

    Args:
        gold: Sparse (documents, columns ≥ labels), or prepared gold.
        counts: Number of training texts of each label of the label space.
        n_train: Number of training texts.
        depth: The largest k of any metric.
        propensity: Constants A and B.
    """

    def __init__(
        self,
        gold: Any,
        *,
        depth: int,
        counts: NDArray[np.integer] | None = None,
        n_train: int | None = None,
        propensity: Propensity | None = None,
    ) -> None:
        self.gold: Gold = prepare_gold(gold)
        self.depth = depth
        if not len(self.gold.kept):
            raise DataError(
                f"none of the {self.gold.n_documents} documents has gold labels, so there is "
                f"nothing to score; check the labels column of the file"
            )
        if counts is not None and len(counts) > self.gold.n_columns:
            raise DataError(
                f"gold labels have {self.gold.n_columns} columns for {len(counts)} labels; "
                f"encode them with the model's label space"
            )
        self.counts = np.zeros(0, np.int64) if counts is None else np.asarray(counts)
        self.n_train, self.propensity = n_train, propensity or Propensity()
        self.n_predictable = self.gold.n_columns if counts is None else len(counts)
        self._judged: tuple[Predictions, Judged] | None = None
        self._weighted: tuple[Predictions, Weighted] | None = None

    def judge(self, predictions: Predictions) -> Judged:
        """Return the hits of predictions; cached for the last predictions."""
        if self._judged is None or self._judged[0] is not predictions:
            self._check(predictions)
            self._judged = predictions, judge(predictions.indices, self.gold)
        return self._judged[1]

    def document_scores(
        self, metric: MetricName, predictions: Predictions, *, threshold: float = 0.5
    ) -> DocumentScores:
        """Return a metric for every document with gold."""
        judged = self.judge(predictions)
        if metric.family in RANKING:
            return RANKING[metric.family](judged, metric.k)
        if metric.family in WEIGHTED:
            return WEIGHTED[metric.family](self._weigh(predictions, metric), metric.k)
        return micro_scores(judged, predictions.scores, threshold).f1

    def _weigh(self, predictions: Predictions, metric: MetricName) -> Weighted:
        if not len(self.counts) or self.n_train is None:
            raise ConfigError(
                f"'{metric}' weighs labels by their training texts; give counts and n_train"
            )
        if self._weighted is None or self._weighted[0] is not predictions:
            judged, depth = self.judge(predictions), self.depth
            weighted = weigh(judged, self._weights, depth=depth, best=self._best)
            self._weighted = predictions, weighted
        return self._weighted[1]

    @cached_property
    def _weights(self) -> Floats:
        assert self.n_train is not None
        columns, formula = self.gold.n_columns, vars(self.propensity)
        return inverse_propensity(self.counts, self.n_train, n_columns=columns, **formula)

    @cached_property
    def _best(self) -> Floats:
        return best_weights(self.gold, self._weights, self.depth)

    def _check(self, predictions: Predictions) -> None:
        if len(predictions) != self.gold.n_documents:
            raise DataError(
                f"there are predictions for {len(predictions)} documents and gold labels for "
                f"{self.gold.n_documents}; both must be of the same file"
            )
        if predictions.k < min(self.depth, self.n_predictable):
            raise DataError(
                f"there are {predictions.k} predictions per document, too few for metrics at "
                f"{self.depth}; predict with k = {self.depth} or more"
            )
        self._check_labels(predictions)

    def _check_labels(self, predictions: Predictions) -> None:
        for start in range(0, len(predictions), _ROWS):
            labels = np.sort(predictions.indices[start : start + _ROWS], axis=1)
            if labels.size and labels.max() >= self.n_predictable:
                raise DataError(
                    f"label {labels.max()} is predicted, but the label space has "
                    f"{self.n_predictable} labels; the predictions are of another model"
                )
            repeated = ((labels[:, 1:] == labels[:, :-1]) & (labels[:, 1:] >= 0)).any(axis=1)
            if repeated.any():
                row = start + int(np.argmax(repeated))
                raise DataError(
                    f"a label is predicted twice for document {row} (counted from 0): "
                    f"{predictions.indices[row].tolist()}; each may appear once"
                )
