"""Evaluation: every metric of every expert in one report, and the comparison of two models.

- each expert and their combination is a named `Predictions`; all are held against the same gold;
- documents without gold are left out and counted; gold outside the label space is missed;
- macro scores come per band of training frequency, over all labels of a band and over those with
  test gold; labels without any training text form the band `unseen`;
- with a mask of near-duplicates, ranking metrics are given without those documents too;
- what a reader must know to trust a number stands in `warnings`.

The conventions are written down in `docs/concepts/metrics.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.errors import ConfigError, DataError
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
from glocal.metrics.documents import DocumentScores
from glocal.metrics.macro import MacroScores, label_counts, macro_scores
from glocal.metrics.metric_names import MACRO, MICRO, RANKING, WEIGHTED, MetricName
from glocal.metrics.reliability import CalibrationError, expected_calibration_error
from glocal.metrics.threshold import micro_scores
from glocal.predict.metric_scores import (
    Propensity,
    Scorer,
    check_metric_name,
    compare,
    metric_value,
)
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands

__all__ = [
    "BandScores",
    "EvaluationReport",
    "Propensity",
    "check_metric_name",
    "compare",
    "evaluate_predictions",
    "metric_value",
]

COMBINED, OVERALL, UNSEEN = "combined", "overall", "unseen"


@dataclass(frozen=True)
class BandScores:
    """Macro scores of a band of labels: over all of them, and over those with test gold."""

    all_labels: MacroScores
    with_gold: MacroScores


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """What an evaluation found.

    Attributes:
        scores: Metric values by expert and metric name, `scores["combined"]["P@1"]`.
        macro: Macro scores by expert, k and band, `macro["combined"][5]["few"]`.
        deduplicated: As `scores`, ranking metrics only, without near-duplicates; None when no
            near-duplicates were given.
        gains: Of the combination over each expert, `gains["D-last"]["P@5"]`, by paired bootstrap
            over the documents; empty where there is nothing but the combination.
        calibration: Calibration error by expert over the first max(ks) predictions of each
            document with gold; None where scores are not probabilities.
        ks: The k of metrics at k.
        threshold: Of micro-F1.
        n_documents: Documents given.
        n_left_out: Those without gold.
        n_duplicates: Evaluated documents marked as near-duplicates; None when not given.
        n_labels: Labels of the label space.
        n_gold: Gold labels of all documents together.
        n_unseen_gold: Those outside the label space.
        propensity: Constants of the propensity-scored metrics.
        warnings: What to know about the numbers.
    """

    scores: dict[str, dict[str, float]]
    macro: dict[str, dict[int, dict[str, BandScores]]]
    deduplicated: dict[str, dict[str, float]] | None
    gains: dict[str, dict[str, BootstrapResult]]
    calibration: dict[str, CalibrationError | None]
    ks: tuple[int, ...]
    threshold: float
    n_documents: int
    n_left_out: int
    n_duplicates: int | None
    n_labels: int
    n_gold: int
    n_unseen_gold: int
    propensity: Propensity
    warnings: tuple[str, ...]

    @property
    def n_evaluated(self) -> int:
        """Documents with gold."""
        return self.n_documents - self.n_left_out

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not a number becomes None."""
        plain = {
            "documents": {
                "given": self.n_documents,
                "evaluated": self.n_evaluated,
                "without_gold": self.n_left_out,
                "near_duplicates": self.n_duplicates,
            },
            "labels": {
                "label_space": self.n_labels,
                "gold": self.n_gold,
                "gold_outside_label_space": self.n_unseen_gold,
            },
            "settings": {
                "ks": list(self.ks),
                "threshold": self.threshold,
                "propensity": asdict(self.propensity),
            },
            "scores": self.scores,
            "deduplicated": self.deduplicated,
            "gains": {
                name: {metric: found.to_dict() for metric, found in by_metric.items()}
                for name, by_metric in self.gains.items()
            },
            "macro": {
                name: {
                    str(k): {band: asdict(found) for band, found in bands.items()}
                    for k, bands in by_k.items()
                }
                for name, by_k in self.macro.items()
            },
            "calibration": {
                name: error and _calibration_dict(error, self.ks)
                for name, error in self.calibration.items()
            },
            "warnings": list(self.warnings),
        }
        return {key: _jsonable(value) for key, value in plain.items()}


def evaluate_predictions(
    predictions: Mapping[str, Predictions],
    gold: Any,
    *,
    counts: NDArray[np.integer],
    n_train: int,
    bands: Bands | None = None,
    ks: Sequence[int] = (1, 3, 5),
    threshold: float = 0.5,
    duplicates: NDArray[np.bool_] | None = None,
    propensity: Propensity | None = None,
) -> EvaluationReport:
    """Compute all metrics of one or more experts on the same documents.

    Args:
        predictions: By expert; `combined` is what the model answers with.
        gold: Sparse (documents, columns ≥ labels); columns beyond the label space are misses.
        counts: Training texts of each label of the label space.
        n_train: Training texts in all.
        bands: Frequency bands of the macro scores; the default ones when not given.
        ks: For metrics at k.
        threshold: For micro-F1.
        duplicates: Documents (n,) that are near-duplicates of training texts.
        propensity: Constants A and B.

    Raises:
        ConfigError: When a k is not at least 1.
        DataError: When shapes do not fit together or no document has gold.
    """
    ks = _checked_ks(ks)
    scorer = Scorer(gold, depth=ks[-1], counts=counts, n_train=n_train, propensity=propensity)
    evaluation = _Evaluation(scorer, ks, threshold, _members(scorer, bands))
    fresh = _fresh_documents(scorer, duplicates)
    for name, found in predictions.items():
        evaluation.add(name, found, fresh)
    return EvaluationReport(
        scores=evaluation.scores,
        macro=evaluation.macro,
        deduplicated=None if fresh is None else evaluation.deduplicated,
        gains=evaluation.gains(),
        calibration=evaluation.calibration,
        ks=ks,
        threshold=threshold,
        n_documents=scorer.gold.n_documents,
        n_left_out=scorer.gold.left_out,
        n_duplicates=None if fresh is None else int((~fresh).sum()),
        n_labels=len(counts),
        n_gold=int(scorer.gold.matrix.nnz),
        n_unseen_gold=int((scorer.gold.matrix.indices >= len(counts)).sum()),
        propensity=scorer.propensity,
        warnings=tuple(evaluation.warnings),
    )


class _Evaluation:
    """The growing parts of a report."""

    def __init__(
        self,
        scorer: Scorer,
        ks: tuple[int, ...],
        threshold: float,
        members: dict[str, NDArray[np.bool_]],
    ) -> None:
        self.scorer, self.ks, self.threshold, self.members = scorer, ks, threshold, members
        self.scores: dict[str, dict[str, float]] = {}
        self.deduplicated: dict[str, dict[str, float]] = {}
        self.macro: dict[str, dict[int, dict[str, BandScores]]] = {}
        self.calibration: dict[str, CalibrationError | None] = {}
        self.warnings: list[str] = []
        self.precisions: dict[str, dict[str, DocumentScores]] = {}

    def gains(self) -> dict[str, dict[str, BootstrapResult]]:
        """The combination's precision against each expert's, document by document."""
        combined = self.precisions.get(COMBINED, {})
        return {
            expert: {
                metric: paired_bootstrap(combined[metric], alone)
                for metric, alone in by_metric.items()
            }
            for expert, by_metric in self.precisions.items()
            if combined and expert != COMBINED
        }

    def add(self, name: str, found: Predictions, fresh: NDArray[np.bool_] | None) -> None:
        """Score one expert."""
        self.scores[name], self.deduplicated[name], self.precisions[name] = {}, {}, {}
        for metric in [MetricName(family, k) for family in (*RANKING, *WEIGHTED) for k in self.ks]:
            documents = self.scorer.document_scores(metric, found)
            self.scores[name][str(metric)] = documents.value
            if metric.family == "P":
                self.precisions[name][str(metric)] = documents
            if fresh is not None:
                self.deduplicated[name][str(metric)] = documents.take(fresh).value
        self._add_macro(name, found)
        self._add_micro(name, found)
        self._add_calibration(name, found)

    def _add_macro(self, name: str, found: Predictions) -> None:
        self.macro[name] = {}
        for k in self.ks:
            counts = label_counts(self.scorer.judge(found), k)
            self.macro[name][k] = {
                band: BandScores(
                    macro_scores(counts, columns), macro_scores(counts, columns, with_gold=True)
                )
                for band, columns in self.members.items()
            }
            overall = self.macro[name][k][OVERALL].all_labels
            for family, attribute in MACRO.items():
                self.scores[name][f"{family}@{k}"] = getattr(overall, attribute)

    def _add_micro(self, name: str, found: Predictions) -> None:
        judged = self.scorer.judge(found)
        micro = micro_scores(
            judged, found.scores, self.threshold, n_labels=self.scorer.n_predictable
        )
        self.scores[name] |= {
            "micro-P": micro.precision,
            "micro-R": micro.recall,
            MICRO: micro.f1.value,
        }
        if micro.saturated:
            self.warnings.append(
                f"{name}: in {micro.saturated} of {len(judged.hits)} documents all {found.k} "
                f"predictions reach the threshold {self.threshold:g}, so micro-F1 misses labels "
                f"beyond them; predict more labels per document or raise the threshold"
            )

    def _add_calibration(self, name: str, found: Predictions) -> None:
        judged = self.scorer.judge(found)
        depth = max(self.ks)
        filled = judged.indices[:, :depth] >= 0
        scores = judged.kept_scores(found.scores)[:, :depth][filled]
        if np.all((scores >= 0) & (scores <= 1)):
            error = expected_calibration_error(scores, judged.hits[:, :depth][filled])
            self.calibration[name], self.scores[name]["ECE"] = error, error.value
        else:
            self.calibration[name], self.scores[name]["ECE"] = None, float("nan")
            self.warnings.append(
                f"{name}: scores from {scores.min():g} to {scores.max():g} are not probabilities, "
                f"so there is no calibration error, and the threshold is held against raw scores"
            )


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    distinct = tuple(sorted({int(k) for k in ks}))
    if not distinct or distinct[0] < 1:
        raise ConfigError(f"metrics need at least one k, each at least 1, not {list(ks)}")
    return distinct


def _members(scorer: Scorer, bands: Bands | None) -> dict[str, NDArray[np.bool_]]:
    """Which gold columns belong to each band; together the bands cover all columns once."""
    bands = Bands() if bands is None else bands
    if reserved := {OVERALL, UNSEEN} & set(bands.names):
        raise ConfigError(
            f"a band cannot be named '{min(reserved)}': the report has one of its own"
        )
    band_of = np.full(scorer.gold.n_columns, -1)
    band_of[: len(scorer.counts)] = bands.assign(scorer.counts)
    members = {band: band_of == number for number, band in enumerate(bands.names)}
    if (band_of < 0).any():
        members[UNSEEN] = band_of < 0
    return {**members, OVERALL: np.ones(len(band_of), dtype=bool)}


def _fresh_documents(
    scorer: Scorer, duplicates: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """Among the documents with gold, those that are no near-duplicates."""
    if duplicates is None:
        return None
    mask = np.asarray(duplicates, dtype=bool)
    if mask.shape != (scorer.gold.n_documents,):
        raise DataError(
            f"near-duplicates are marked for {mask.shape} documents, but there are "
            f"{scorer.gold.n_documents}"
        )
    return ~mask[scorer.gold.kept]


def _calibration_dict(error: CalibrationError, ks: tuple[int, ...]) -> dict[str, Any]:
    return {
        "ECE": error.value,
        "bins": error.bins,
        "population": f"the first {max(ks)} predictions of each document with gold",
        "n": error.n,
        "counts": error.counts.tolist(),
        "confidence": error.confidence.tolist(),
        "accuracy": error.accuracy.tolist(),
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
