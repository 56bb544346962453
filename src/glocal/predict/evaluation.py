"""Evaluation: every metric of a model and of each expert in one report.

- the model's predictions and each expert's are compared with the same gold labels;
- documents without gold are skipped and counted; gold outside the label space counts as missed;
- macro scores come per band of training frequency, over all labels of a band and over those with
  test gold; labels without any training text form the band `unseen`;
- with a mask of near-duplicates, ranking metrics are also given without those documents;
- `warnings` lists everything a reader must know to trust a number.

The conventions are written down in `docs/concepts/metrics.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools
from glocal.errors import ConfigError, DataError
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
from glocal.metrics.documents import DocumentScores
from glocal.metrics.macro import MacroScores, label_counts, macro_scores
from glocal.metrics.metric_names import MACRO, MICRO, RANKING, WEIGHTED, MetricName
from glocal.metrics.reliability import (
    CalibrationError,
    LabelSums,
    ScoreRange,
    expected_calibration_error,
    score_ranges,
)
from glocal.metrics.threshold import micro_scores
from glocal.predict.metric_scores import Propensity, Scorer
from glocal.ranking.decision import Decision
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands

OVERALL, UNSEEN = "overall", "unseen"  # bands that every report has
COMBINED, MEAN = "combined", "mean"  # the model and the experts' mean, in tables and stored reports


@dataclass(frozen=True)
class BandScores:
    """Macro scores of a band of labels: over all of them, and over those with test gold."""

    all_labels: MacroScores
    with_gold: MacroScores


@dataclass(frozen=True, eq=False, kw_only=True)
class PartReport:
    """All metrics of one expert, of the experts' mean, or of the whole model.

    Attributes:
        scores: Values by metric, such as `scores["P@1"]`.
        macro: Macro scores by k and band, such as `macro[5]["few"]`.
        deduplicated: Ranking metrics without near-duplicates; None when none were given.
        calibration: Calibration error over the first max(ks) predictions of each document with
            gold; None where scores are not probabilities.
        ranges: Mean probability and observed share of gold labels by range of scores, over all
            predictions given; empty where scores are not probabilities.
        gains: How much better the whole model is, by metric (`gains["P@5"]`), by paired bootstrap
            over the documents; empty for the model itself.
    """

    scores: dict[str, float]
    macro: dict[int, dict[str, BandScores]]
    deduplicated: dict[str, float] | None
    calibration: CalibrationError | None
    ranges: list[ScoreRange]
    gains: dict[str, BootstrapResult] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluationReport(PartReport):
    """The result of an evaluation: the metrics of the model, and of each expert by itself.

    Attributes:
        experts: Metrics of each expert by its name, such as `experts["A-1"].scores["P@1"]`.
        mean: Metrics of the mean of the experts' probabilities, where asked for.
        ks: The cut-offs of metrics at k.
        decision: The rule that chooses the tags which micro-F1 counts.
        n_documents: Number of documents given.
        n_left_out: Number of documents without gold.
        n_duplicates: Evaluated documents marked as near-duplicates; None when not given.
        n_labels: Number of labels in the label space.
        n_gold: Gold labels of all documents together.
        n_unseen_gold: Gold labels outside the label space.
        propensity: Constants of the propensity-scored metrics.
        warnings: Notes on how far the numbers can be trusted.
        label_sums: Number of labels of a document by its probabilities, and observed; None where
            not every label was scored.
    """

    experts: dict[str, PartReport]
    mean: PartReport | None
    ks: tuple[int, ...]
    decision: Decision
    n_documents: int
    n_left_out: int
    n_duplicates: int | None
    n_labels: int
    n_gold: int
    n_unseen_gold: int
    propensity: Propensity
    warnings: tuple[str, ...]
    label_sums: LabelSums | None = None

    @property
    def n_evaluated(self) -> int:
        """Number of documents with gold."""
        return self.n_documents - self.n_left_out

    def parts(self) -> dict[str, PartReport]:
        """Return the model's metrics as `combined`, each expert's by its name, and the `mean`."""
        mean = {} if self.mean is None else {MEAN: self.mean}
        return {COMBINED: self, **self.experts, **mean}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, by the names of `parts`; NaN becomes None."""
        parts = self.parts()
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
                "threshold": self.decision.threshold,
                "at_least": self.decision.at_least,
                "own_thresholds": len(self.decision.own),
                "propensity": asdict(self.propensity),
            },
            "scores": {name: part.scores for name, part in parts.items()},
            "deduplicated": None
            if self.deduplicated is None
            else {name: part.deduplicated for name, part in parts.items()},
            "gains": {
                name: {metric: found.to_dict() for metric, found in part.gains.items()}
                for name, part in parts.items()
                if part.gains
            },
            "macro": {
                name: {
                    str(k): {band: asdict(found) for band, found in bands.items()}
                    for k, bands in part.macro.items()
                }
                for name, part in parts.items()
            },
            "calibration": {
                name: part.calibration and _calibration_dict(part, self.ks)
                for name, part in parts.items()
            },
            "label_sums": None if self.label_sums is None else asdict(self.label_sums),
            "warnings": list(self.warnings),
        }
        return {key: _jsonable(value) for key, value in plain.items()}


def evaluate_predictions(
    predictions: Predictions,
    gold: Any,
    *,
    counts: NDArray[np.integer],
    n_train: int,
    bands: Bands | None = None,
    ks: Sequence[int] = (1, 3, 5),
    decision: Decision | float = 0.5,
    duplicates: Bools | None = None,
    propensity: Propensity | None = None,
) -> EvaluationReport:
    """Compute all metrics of a model, and of the experts in its predictions.

    Args:
        predictions: The model's, with those of experts or the mean where they were asked for.
        gold: Sparse (documents, columns ≥ labels); columns beyond the label space are misses.
        counts: Number of training texts of each label of the label space.
        n_train: Number of training texts.
        bands: Frequency bands of the macro scores; the default ones when not given.
        ks: Cut-offs of metrics at k.
        decision: The rule that chooses the tags which micro-F1 counts, or their lowest score.
        duplicates: Documents (n,) that are near-duplicates of training texts.
        propensity: Constants A and B.

    Raises:
        ConfigError: When a k is not at least 1.
        DataError: When shapes do not fit together or no document has gold.
    """
    ks = _checked_ks(ks)
    scorer = Scorer(gold, depth=ks[-1], counts=counts, n_train=n_train, propensity=propensity)
    fresh = _fresh_documents(scorer, duplicates)
    if not isinstance(decision, Decision):
        decision = Decision(decision, at_least=0)
    evaluation = _Evaluation(scorer, ks, decision, _band_columns(scorer, bands), fresh)
    whole = evaluation.part(COMBINED, predictions)
    experts = {name: evaluation.part(name, found) for name, found in predictions.experts.items()}
    mean = predictions.mean
    return EvaluationReport(
        **vars(whole),
        experts=experts,
        mean=None if mean is None else evaluation.part(MEAN, mean),
        ks=ks,
        decision=decision,
        n_documents=scorer.gold.n_documents,
        n_left_out=scorer.gold.left_out,
        n_duplicates=None if fresh is None else int((~fresh).sum()),
        n_labels=len(counts),
        n_gold=int(scorer.gold.matrix.nnz),
        n_unseen_gold=int((scorer.gold.matrix.indices >= len(counts)).sum()),
        propensity=scorer.propensity,
        warnings=tuple(evaluation.warnings),
    )


@dataclass
class _Evaluation:
    """Scores one set of predictions after another, and collects warnings."""

    scorer: Scorer
    ks: tuple[int, ...]
    decision: Decision
    band_columns: dict[str, Bools]
    fresh: Bools | None
    warnings: list[str] = field(default_factory=list)
    precisions: dict[str, DocumentScores] = field(default_factory=dict)  # of the model

    def part(self, name: str, found: Predictions) -> PartReport:
        """Compute all metrics; those of the model come first, since gains are measured over it."""
        scores, deduplicated, gains = {}, {}, {}
        for metric in [MetricName(family, k) for family in (*RANKING, *WEIGHTED) for k in self.ks]:
            documents = self.scorer.document_scores(metric, found)
            scores[str(metric)] = documents.value
            if self.fresh is not None:
                deduplicated[str(metric)] = documents.take(self.fresh).value
            if metric.family == "P" and name == COMBINED:
                self.precisions[str(metric)] = documents
            elif metric.family == "P":
                gains[str(metric)] = paired_bootstrap(self.precisions[str(metric)], documents)
        macro = {k: self._macro(found, k) for k in self.ks}
        for k, bands in macro.items():
            for family, attribute in MACRO.items():
                scores[f"{family}@{k}"] = getattr(bands[OVERALL].all_labels, attribute)
        calibration, ranges = self._calibration(name, found)
        scores |= self._micro(name, found)
        scores["ECE"] = float("nan") if calibration is None else calibration.value
        return PartReport(
            scores=scores,
            macro=macro,
            deduplicated=None if self.fresh is None else deduplicated,
            calibration=calibration,
            ranges=ranges,
            gains=gains,
        )

    def _macro(self, found: Predictions, k: int) -> dict[str, BandScores]:
        counts = label_counts(self.scorer.judge(found), k)
        return {
            band: BandScores(
                macro_scores(counts, columns), macro_scores(counts, columns, with_gold=True)
            )
            for band, columns in self.band_columns.items()
        }

    def _micro(self, name: str, found: Predictions) -> dict[str, float]:
        tags = self.decision(found)
        judged = self.scorer.judge(tags)
        micro = micro_scores(judged, tags.scores, -math.inf, n_labels=self.scorer.n_predictable)
        if micro.saturated:
            self.warnings.append(
                f"{name}: in {micro.saturated} of {len(judged.hits)} documents all {found.k} "
                f"predictions reach the threshold {self.decision.threshold:g}, so micro-F1 misses "
                f"labels beyond them; predict more labels per document or raise the threshold"
            )
        return {"micro-P": micro.precision, "micro-R": micro.recall, MICRO: micro.f1.value}

    def _calibration(
        self, name: str, found: Predictions
    ) -> tuple[CalibrationError | None, list[ScoreRange]]:
        judged, first = self.scorer.judge(found), np.s_[:, : max(self.ks)]
        every, filled = judged.kept_scores(found.scores), judged.indices >= 0
        scores = every[first][filled[first]]
        if np.all((scores >= 0) & (scores <= 1)):
            error = expected_calibration_error(scores, judged.hits[first][filled[first]])
            return error, score_ranges(every[filled], judged.hits[filled])
        self.warnings.append(
            f"{name}: scores from {scores.min():g} to {scores.max():g} are not probabilities, "
            f"so there is no calibration error, and the threshold applies to raw scores"
        )
        return None, []


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    distinct = tuple(sorted({int(k) for k in ks}))
    if not distinct or distinct[0] < 1:
        raise ConfigError(f"metrics need at least one k, each at least 1, not {list(ks)}")
    return distinct


def _band_columns(scorer: Scorer, bands: Bands | None) -> dict[str, Bools]:
    """Return the gold columns of each band; together the bands cover every column once."""
    bands = Bands() if bands is None else bands
    if reserved := {OVERALL, UNSEEN} & set(bands.names):
        raise ConfigError(
            f"a band cannot be named '{min(reserved)}': the report has one of its own"
        )
    band_of = np.full(scorer.gold.n_columns, -1)
    band_of[: len(scorer.counts)] = bands.assign(scorer.counts)
    columns = {band: band_of == number for number, band in enumerate(bands.names)}
    if (band_of < 0).any():
        columns[UNSEEN] = band_of < 0
    return {**columns, OVERALL: np.ones(len(band_of), dtype=bool)}


def _fresh_documents(scorer: Scorer, duplicates: Bools | None) -> Bools | None:
    """Mark the documents with gold that are no near-duplicates."""
    if duplicates is None:
        return None
    mask = np.asarray(duplicates, dtype=bool)
    if mask.shape != (scorer.gold.n_documents,):
        raise DataError(
            f"near-duplicates are marked for {mask.shape} documents, but there are "
            f"{scorer.gold.n_documents}"
        )
    return ~mask[scorer.gold.kept]


def _calibration_dict(part: PartReport, ks: tuple[int, ...]) -> dict[str, Any]:
    error = part.calibration
    assert error is not None
    return {
        "ECE": error.value,
        "bins": error.bins,
        "population": f"the first {max(ks)} predictions of each document with gold",
        "n": error.n,
        "counts": error.counts.tolist(),
        "confidence": error.confidence.tolist(),
        "accuracy": error.accuracy.tolist(),
        "ranges": [asdict(found) for found in part.ranges],
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
