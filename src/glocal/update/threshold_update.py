"""The threshold of a stored model, tuned again on labelled texts after training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.predict.predictor import Predictor
from glocal.progress import Progress
from glocal.ranking.decision import Decision
from glocal.ranking.decision_fit import (
    DecisionScores,
    Goal,
    decision_scores,
    fit_decision,
    fit_label_decision,
)
from glocal.storage.model_directory import store_decision

_DEPTH = 100  # labels of a text looked at, or ten times the number of labels asked for


@dataclass(frozen=True)
class ThresholdUpdate:
    """A threshold that was tuned, and what the tags were like before and after.

    Attributes:
        path: The model directory.
        decision: The tuned decision.
        former: The decision before.
        before: Scores of the former decision on the texts.
        after: Scores of the tuned one; with thresholds per label, by cross-validation.
        n_texts: Number of texts with labels.
        stored: Whether it was stored with the model.
    """

    path: Path
    decision: Decision
    former: Decision
    before: DecisionScores
    after: DecisionScores
    n_texts: int
    stored: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        decisions = {name: getattr(self, name).to_mapping() for name in ("decision", "former")}
        return {**asdict(self), **decisions, "path": str(self.path)}


def tune_threshold(
    path: str | Path,
    corpus: Corpus,
    *,
    precision: float | None = None,
    labels_per_text: float | None = None,
    per_label: bool = False,
    at_least: int | None = None,
    store: bool = True,
    device: str = "auto",
    batch_size: int = 64,
    progress: Progress | None = None,
) -> ThresholdUpdate:
    """Tune the decision which labels become tags by default, and store it with the model.

    By default for the highest micro-F1.

    Args:
        path: The model directory.
        corpus: Texts with labels that the model was not trained on.
        precision: Share of right tags among all tags; the lowest threshold that reaches it is used.
        labels_per_text: Mean number of tags of a text.
        per_label: Give labels thresholds of their own where the texts say enough about them; the
            others stay near the common one.
        at_least: Number of tags a text gets whatever their probability; 1 by default, but 0 for a
            precision or less than one label per text.
        store: Whether to change the model.
        device: The device to compute on: `auto`, `cpu`, `cuda` or `cuda:N`.
        batch_size: Texts per batch.
        progress: Called with (texts done, texts).

    Raises:
        ConfigError: The goal is no valid one, or no threshold meets it.
        ModelError: The model cannot be read or written.

    Example:
        >>> from glocal import Corpus, tune_threshold
        >>> dev = Corpus.from_texts(texts, labels)
        >>> tune_threshold("model/", dev, precision=0.9).after.precision
        1.0
    """
    goal, at_least = _checked(precision, labels_per_text, at_least)
    predictor = Predictor.load(path, device=device, batch_size=batch_size)
    gold = predictor.labels.encode(corpus)
    n_texts = int((gold.getnnz(axis=1) > 0).sum())
    if not n_texts:
        raise ConfigError("the texts have no labels, so there is nothing to tune a threshold on")
    depth = min(max(_DEPTH, int(10 * (labels_per_text or 0))), len(predictor.labels))
    found = predictor.predict(corpus, k=depth, progress=progress)
    if per_label:
        decision, after = fit_label_decision(found, gold, goal=goal, at_least=at_least)
    else:
        decision = fit_decision(found, gold, goal=goal, at_least=at_least)
        after = decision_scores(decision, found, gold)
    decision = replace(decision, goal=str(goal), n_texts=n_texts)
    before = decision_scores(predictor.decision, found, gold)
    if store:
        store_decision(path, decision)
    return ThresholdUpdate(
        Path(path), decision, predictor.decision, before, after, n_texts, stored=store
    )


def _checked(
    precision: float | None, labels_per_text: float | None, at_least: int | None
) -> tuple[Goal, int]:
    """Return the goal and the number of tags a text gets in any case."""
    if precision is not None and labels_per_text is not None:
        raise ConfigError(
            "a threshold is tuned for a precision or a number of labels per text, not both; "
            "choose one"
        )
    if precision is not None and not 0 < precision <= 1:
        raise ConfigError(f"the precision must be above 0 and at most 1, not {precision}")
    if labels_per_text is not None and not labels_per_text > 0:
        raise ConfigError(f"the number of labels per text must be above 0, not {labels_per_text}")
    if at_least is None:
        at_least = 0 if precision is not None or (labels_per_text or 1) < 1 else 1
    if at_least < 0:
        raise ConfigError(f"a text cannot get at least {at_least} tags; choose 0 or more")
    return Goal(precision, labels_per_text), at_least
