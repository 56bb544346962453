"""Compare models by their saved scores: metrics, paired bootstrap, mean and spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.lab.combine import check_same_texts, mean_probabilities
from glocal.lab.saved_scores import SavedScores
from glocal.metrics.bootstrap import BootstrapResult
from glocal.predict.metric_scores import compare
from glocal.table import Table, columns

_FAMILIES = ("P", "nDCG")


@dataclass(frozen=True)
class ScoreComparison:
    """Metrics of several models, and their differences to the first.

    Attributes:
        scores: Metrics of each model by its name, the first one first.
        differences: For each further model and metric, the difference to the first.
    """

    scores: Mapping[str, Mapping[str, float]]
    differences: Mapping[str, Mapping[str, BootstrapResult]]

    def spread(self) -> dict[str, tuple[float, float]]:
        """Return mean and standard deviation of the further models, by metric."""
        _, *others = self.scores.values()
        found = {}
        for metric in others[0]:
            values = [scores[metric] for scores in others]
            deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            found[metric] = float(np.mean(values)), deviation
        return found

    def tables(self) -> list[Table]:
        """Return the scores with their spread, and the differences."""
        first, *others = self.scores
        metrics = list(self.scores[first])
        rows = [(name, *(scores[m] for m in metrics)) for name, scores in self.scores.items()]
        if len(others) > 1:
            spread = self.spread()
            rows.append((f"mean of {len(others)}", *(spread[m][0] for m in metrics)))
            rows.append(("standard deviation", *(spread[m][1] for m in metrics)))
        table = Table("Scores", [*columns("text", "model"), *columns("share", *metrics)], rows)
        apart = Table(
            f"Difference to {first}",
            [
                *columns("text", "model", "metric"),
                *columns("points", "difference", "from", "to"),
                *columns("number", "p"),
            ],
            [
                (name, metric, d.difference, d.low, d.high, d.p_value)
                for name, found in self.differences.items()
                for metric, d in found.items()
            ],
            note="In points, with 95% intervals by paired bootstrap over the texts.",
        )
        return [table, apart]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "scores": {name: dict(scores) for name, scores in self.scores.items()},
            "spread": {
                metric: {"mean": mean, "standard_deviation": deviation}
                for metric, (mean, deviation) in self.spread().items()
            },
            "differences": {
                name: {metric: d.to_dict() for metric, d in found.items()}
                for name, found in self.differences.items()
            },
        }


def compare_scores(
    files: Mapping[str, SavedScores], *, ks: Sequence[int] = (1, 3, 5)
) -> ScoreComparison:
    """Compare models on the same texts; a model of several experts counts by their mean.

    Args:
        files: Saved scores of each model by its name; the others are compared with the first.
        ks: Cut-offs of the metrics.

    Raises:
        ConfigError: The files belong to other texts or label spaces.
    """
    check_same_texts(list(files.values()))
    first, *others = files
    gold = files[first].gold
    found = {name: mean_probabilities(file) for name, file in files.items()}
    metrics = [f"{family}@{k}" for family in _FAMILIES for k in ks]
    scores = {}
    for name, predictions in found.items():
        report = files[first].evaluate(predictions, ks)
        scores[name] = {metric: report.scores[metric] for metric in metrics}
    differences = {
        name: {m: compare(found[name], found[first], gold, metric=m) for m in metrics}
        for name in others
    }
    return ScoreComparison(scores, differences)
