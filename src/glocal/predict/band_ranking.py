"""Rankings within each frequency band: its labels compete with each other alone.

- How well a model tells frequent, rare and unseen labels apart is not seen in a ranking of all
  labels, where the frequent ones come first (Chalkidis et al., ACL 2019, rank bands this way).
- Each band twice: all of its labels compete, and those with gold alone. The second is what is
  published for unseen labels (with gold in dev or test); it is the easier task.
- Labels of the label space without a training text are the band `unseen`. Gold labels outside the
  space belong to it and are missed. A band of which the model knows no label has no value.
- Every value has a bootstrap interval over the documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Bools, Ints
from glocal.data.corpus import Corpus
from glocal.metrics.bootstrap import paired_bootstrap
from glocal.metrics.documents import DocumentScores
from glocal.metrics.ranking import judge, ndcg_at_k, r_precision_at_k
from glocal.predict.evaluation import COMBINED, UNSEEN
from glocal.progress import Progress
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

BANDS = "few=1-50,frequent=51-"
_METRICS = {"nDCG": ndcg_at_k, "RP": r_precision_at_k}


@dataclass(frozen=True)
class Interval:
    """A value over the documents, with the bounds of its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, scores: DocumentScores) -> Interval:
        """Return the mean of a metric and its interval."""
        against_nothing = DocumentScores(np.zeros(len(scores)), np.ones(len(scores)))
        found = paired_bootstrap(scores, against_nothing)
        return cls(found.value_a, found.low, found.high)


@dataclass(frozen=True)
class BandRanking:
    """A band of labels ranked by the model or by one expert.

    Attributes:
        band: Name of the band.
        part: Name of the expert, or `combined` for the model.
        with_gold: Whether only labels with gold compete.
        n_labels: Number of labels that compete.
        n_documents: Number of documents with a gold label of the band.
        scores: Values by metric, such as `nDCG@5`; None where the model knows no label of the
            band and so cannot predict any.
    """

    band: str
    part: str
    with_gold: bool
    n_labels: int
    n_documents: int
    scores: dict[str, Interval | None]


def rank_within_bands(
    predictor: Predictor,
    corpus: Corpus,
    *,
    bands: Bands | None = None,
    k: int = 5,
    more_gold: Corpus | None = None,
    progress: Progress | None = None,
) -> list[BandRanking]:
    """Rank the labels of each band among each other.

    Args:
        predictor: The model.
        corpus: Texts with gold labels.
        bands: Bands of training frequency; `BANDS` by default.
        k: Labels per text to look at.
        more_gold: Texts of another split, whose labels also count as labels with gold.
        progress: Called with (done, total) texts of a ranking.

    Returns:
        Rankings by band, from the rarest; a band without gold has none.
    """
    bands = Bands.parse(BANDS) if bands is None else bands
    gold = predictor.labels.encode(corpus)
    elsewhere = _labels_of(more_gold, predictor.labels)
    rankings = []
    for name, members in label_bands(predictor.labels.counts, bands, gold.shape[1]):
        columns = np.flatnonzero(members)
        inside = gold[:, columns]
        rows = np.flatnonzero(np.diff(inside.indptr))
        if not len(rows):
            continue
        found_gold = np.union1d(columns[np.unique(inside.indices)], elsewhere[members[elsewhere]])
        texts = corpus.take(rows)
        for competing in (columns, found_gold):
            known = competing[competing < len(predictor.labels)]
            scores: dict[str, dict[str, Interval | None]]
            if columns.min() >= len(predictor.labels):
                scores = {COMBINED: dict.fromkeys(f"{metric}@{k}" for metric in _METRICS)}
            else:
                found = _ranked(predictor, texts, known, k, progress)
                parts, alone = {COMBINED: found, **found.experts}, _only(gold[rows], columns)
                scores = {part: _scores(best, alone, k) for part, best in parts.items()}
            counts = competing is found_gold, len(competing), len(rows)
            rankings += [BandRanking(name, part, *counts, own) for part, own in scores.items()]
    return rankings


def _labels_of(corpus: Corpus | None, labels: LabelSpace) -> Ints:
    """Return the labels of the space that some of the texts have."""
    if corpus is None:
        return np.empty(0, dtype=np.int64)
    found = np.unique(labels.encode(corpus).indices).astype(np.int64)
    return found[found < len(labels)]


def label_bands(counts: Ints, bands: Bands, n_columns: int) -> Iterator[tuple[str, Bools]]:
    """Yield the columns of each band, unseen labels first."""
    band_of = np.full(n_columns, -1)
    band_of[: len(counts)] = bands.assign(counts)
    yield UNSEEN, band_of < 0
    for number, name in enumerate(bands.names):
        yield name, band_of == number


def _ranked(
    predictor: Predictor, texts: Corpus, columns: Ints, k: int, progress: Progress | None
) -> Predictions:
    if not len(columns):
        nothing = np.full((len(texts), k), -1)
        return Predictions(nothing, np.full(nothing.shape, -np.inf, np.float32))
    return predictor.predict_corpus(
        texts,
        k=min(k, len(columns)),
        only=[predictor.labels.ids[column] for column in columns],
        per_expert=len(predictor.expert_names) > 1,
        progress=progress,
    )


def _only(gold: Any, columns: Ints) -> Any:
    """Return the gold matrix with the other columns empty."""
    from scipy.sparse import csr_matrix

    kept = np.isin(gold.indices, columns)
    bounds = np.concatenate([[0], np.cumsum(kept)])[gold.indptr]
    return csr_matrix((gold.data[kept], gold.indices[kept], bounds), shape=gold.shape)


def _scores(predictions: Predictions, gold: Any, k: int) -> dict[str, Interval | None]:
    judged = judge(predictions.indices, gold)
    return {f"{name}@{k}": Interval.of(metric(judged, k)) for name, metric in _METRICS.items()}
