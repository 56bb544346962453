"""Scores on dev during a run; at its end the experts' weights and the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from glocal.arrays import Ints
from glocal.config import Recipe
from glocal.data.batches import Collator
from glocal.predict.evaluation import evaluate_predictions
from glocal.predict.metric_scores import metric_value
from glocal.predict.topk_documents import score_documents
from glocal.ranking.calibration import Calibration, CalibrationPairs, calibrate
from glocal.ranking.combination import Combination, fit_weights
from glocal.ranking.decision import Decision
from glocal.ranking.decision_fit import fit_decision
from glocal.ranking.document_ranker import DocumentRanker
from glocal.ranking.pool import Pool, distinct_labels
from glocal.ranking.predictions import Predictions
from glocal.ranking.unseen_shift import fit_unseen_shift
from glocal.train.later_companions import LaterCompanions
from glocal.train.local_engine import LocalEngine
from glocal.vocabulary.label_space import LabelSpace

_DEV_K = 20  # labels per dev document looked at for metrics and weights
# For the calibration, this many of the best labels of every document, and fewer of very many:
_CALIBRATED_K, _CALIBRATED_PAIRS = 200, 20_000_000
# and all labels of a sample of documents, or this many of the best:
_MOST_LABELS, _FEWEST_SAMPLED = 50_000, 200
_SAMPLED_PAIRS, _PAIRS_AT_A_TIME = 40_000_000, 4_000_000
_BEST, _FEW_OUTSIDE = 5, 1e-3  # share of the best labels that may be outside the pool
_FITS = 3  # most fits
_REPORTED = ("P@1", "P@3", "P@5", "nDCG@5")


class DevScores(NamedTuple):
    """Scores on dev by metric, of the whole model and of each expert by itself."""

    model: dict[str, float]
    experts: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Outcome:
    """Everything a finished training learned and measured in addition to the weights.

    Attributes:
        metrics: Scores and times, as they are stored.
        calibration: Calibration of the model's scores.
        decision: Which labels become tags.
    """

    metrics: dict[str, Any]
    calibration: Calibration = field(default_factory=Calibration)
    decision: Decision = field(default_factory=Decision)


@dataclass
class DevEvaluator:
    """Scores on dev, divided among the processes.

    Args:
        system: The system to score.
        documents: The dev documents with their gold labels.
        labels: The label space.
        engine: Where the run computes.
        recipe: The settings.
        later: Companions whose features are there at the end of the run.
    """

    system: DocumentRanker
    documents: Collator
    labels: LabelSpace
    _: KW_ONLY
    engine: LocalEngine
    recipe: Recipe
    later: LaterCompanions | None = None

    @property
    def gold(self) -> Any:
        """The gold labels, a CSR matrix."""
        return self.documents.gold

    def predictions(
        self,
        *,
        k: int | None = None,
        exact: bool = False,
        positions: Ints | None = None,
        candidates: np.ndarray | None = None,
        experts: Sequence[str] | None = None,
    ) -> Predictions:
        """Return the top labels of dev documents, the same in every process.

        Args:
            k: Labels per document; by default as many as metrics look at.
            exact: Compute in fp32.
            positions: The documents, in rising order; by default all.
            candidates: (documents, m) labels to score, −1 for none; by default all.
            experts: Experts whose own predictions are also returned; by default all if there are
                several.
        """
        engine, names = self.engine, self.system.expert_names
        if experts is None:
            experts = names if len(names) > 1 else ()
        if positions is None:
            positions = np.arange(len(self.documents))
        mine = positions[engine.rank :: engine.world]
        found = score_documents(
            self.system,
            self.documents,
            k=(k or _DEV_K) if candidates is None else candidates.shape[1],
            candidates=candidates,
            batch_size=2 * self.recipe.train.batch_size,
            positions=mine,
            experts=experts,
            autocast=nullcontext if exact else engine.autocast,
        )
        if engine.world == 1:
            return found
        pieces = engine.gather([(mine, found)])
        order = np.argsort(np.concatenate([positions for positions, _ in pieces]))
        return Predictions.concat([piece for _, piece in pieces]).take(order)

    def __call__(self) -> DevScores:
        """Return the scores of the experts in training, as they are."""
        system = self.system
        with system.only_trained():
            return self._scores(self.predictions())

    def _scores(self, found: Predictions) -> DevScores:
        return DevScores(
            self._values(found),
            {name: self._values(alone) for name, alone in found.experts.items()},
        )

    def _values(self, predictions: Predictions) -> dict[str, float]:
        names = dict.fromkeys([*_REPORTED, self.recipe.train.metric])
        gold, counts, n_train = self.gold, self.labels.counts, self.labels.n_documents
        return {
            name: metric_value(name, predictions, gold, counts=counts, n_train=n_train)
            for name in names
        }

    def final(self) -> Outcome:
        """Fit weights, calibration and decision of the chosen model, and report on it."""
        if self.later is not None and (features := self.later.dev_features):
            known = {**self.documents.companion_features, **features}
            self.documents = replace(self.documents, companion_features=known)
        found = self._combined()
        calibration = self._calibration(found)
        found = calibrate(self._with_unseen(found, calibration), calibration)
        decision = fit_decision(found, self.gold)
        scores = self._scores(found)
        report = evaluate_predictions(
            found,
            self.gold,
            counts=self.labels.counts,
            n_train=self.labels.n_documents,
            decision=decision,
        )
        metrics = {"dev": scores.model, "dev_experts": scores.experts}
        return Outcome({**metrics, "dev_report": report.to_dict()}, calibration, decision)

    def combined(self) -> DevScores:
        """Fit the experts' weights alone, and return the scores with them."""
        return self._scores(self._combined())

    def _combined(self) -> Predictions:
        if self.recipe.combine != "weights" or not self.system.learns_weights:
            return self.predictions(exact=True, k=self._wide)
        found = self.predictions(exact=True)
        best = self._combine(found)
        return replace(found, indices=best.indices, scores=best.scores)

    def _with_unseen(self, found: Predictions, calibration: Calibration) -> Predictions:
        """Fit the constant of labels without training texts; return the predictions with it."""
        combination = self.system.combination
        if not combination.weights or self.labels.counts.all():
            return found
        shift = fit_unseen_shift(found, self.gold, self.labels.counts, calibration)
        if not shift:
            return found
        self.system.combination = replace(combination, unseen=combination.unseen + shift)
        best = self.predictions(exact=True, k=self._wide, experts=())
        return replace(found, indices=best.indices, scores=best.scores)

    @property
    def _wide(self) -> int:
        """Labels per document that the calibration looks at."""
        many = _CALIBRATED_PAIRS // max(1, len(self.documents))
        return min(self.system.n_labels, _CALIBRATED_K, max(_DEV_K, many))

    def _calibration(self, best: Predictions) -> Calibration:
        """Fit on the best labels of every document, and on all labels of a sample of documents."""
        pairs = CalibrationPairs()
        pairs.add(best, self.gold)
        n_documents, n_labels = self.gold.shape[0], self.system.n_labels
        # A shortlist is all that is ever predicted where there is one.
        width = min(n_labels, self.recipe.candidates.predicted(n_labels) or _MOST_LABELS)
        count = min(n_documents, max(_FEWEST_SAMPLED, _SAMPLED_PAIRS // width))
        sample = np.random.default_rng(self.recipe.train.seed).permutation(n_documents)[:count]
        at_a_time = max(1, _PAIRS_AT_A_TIME // width)
        if width > (known := best.indices.shape[1]):
            for start in range(0, count, at_a_time):
                chosen = np.sort(sample[start : start + at_a_time])
                deep = self.predictions(exact=True, positions=chosen, k=width, experts=())
                pairs.add(deep, self.gold[chosen], skip=known, weight=n_documents / count)
        return pairs.fit()

    def _combine(self, found: Predictions) -> Predictions:
        """Learn the experts' weights; return the combined predictions over all labels.

        A single expert also gains from the frequency term, and its weight calibrates it. The
        frequency term also lifts rare labels that no expert proposed: where these reach the best,
        weights are learned again with them in the pool. Every process has the same predictions, and
        so learns the same weights.
        """
        proposed = [alone.indices for alone in found.experts.values()] or [found.indices]
        ranked = found
        for _ in range(_FITS):
            pooled = distinct_labels(np.concatenate(proposed, axis=1))
            fitted = self._fit(pooled)
            if fitted is None:
                break
            self.system.combination = fitted
            ranked = self.predictions(exact=True, k=self._wide, experts=())
            if _share_outside(ranked.indices[:, :_BEST], pooled) <= _FEW_OUTSIDE:
                break
            proposed.append(ranked.indices[:, :_DEV_K])
        return ranked

    def _fit(self, pooled: Ints) -> Combination | None:
        experts = self.system.expert_names
        scored = self.predictions(exact=True, candidates=pooled, experts=experts)
        pool = Pool.from_predictions(pooled, scored.experts, self.labels.counts)
        return fit_weights(pool, self.gold)


def _share_outside(labels: Ints, pooled: Ints) -> float:
    """Return the share of labels (n, k) that are not among the document's pooled ones (n, m)."""
    span = int(max(labels.max(initial=0), pooled.max(initial=0))) + 1
    places = np.arange(len(labels))[:, None] * span
    there = labels >= 0
    keys, known = (places + labels)[there], (places + pooled)[pooled >= 0]
    return float(1.0 - np.isin(keys, known).mean()) if len(keys) else 0.0
