"""The comparison of two models on the same texts, whose label spaces may differ.

The predictions of both are brought into one set of columns: the labels of either model, then the
gold labels that neither knows. Models are loaded one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from glocal.predict.metric_scores import compare
from glocal.predict.predictor import Predictor
from glocal.progress import Progress
from glocal.ranking.predictions import Predictions

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.metrics.bootstrap import BootstrapResult
    from glocal.predict.evaluation import EvaluationReport

FAMILIES = ("P", "nDCG", "R")


def compare_models(
    paths: Sequence[Path],
    corpus: Corpus,
    *,
    options: Mapping[str, Any],
    device: str = "auto",
    batch_size: int = 64,
    progress: Progress | None = None,
) -> tuple[dict[str, EvaluationReport], dict[str, BootstrapResult]]:
    """Return the report of each model, and for each metric the second model minus the first.

    Args:
        paths: Two model directories.
        corpus: Labelled texts.
        options: Arguments of `Predictor.evaluate`.
        device: The device to compute on.
        batch_size: Texts computed at a time.
        progress: Called with the texts done and their number, for each model in turn.
    """
    columns: dict[str, int] = {}
    reports, predictions = {}, []
    for path in paths:
        predictor = Predictor.load(path, device=device, batch_size=batch_size)
        found = predictor.predict_for_report(corpus, ks=options["ks"], progress=progress)
        reports[str(path)] = predictor.report(found, corpus, **options)
        predictions.append(_in_columns(found, predictor.labels.ids, columns))
        del predictor  # frees its memory before the next model is read
    gold = _gold(corpus, columns)
    first, second = predictions
    comparison = {
        f"{family}@{k}": compare(second, first, gold, metric=f"{family}@{k}")
        for family in FAMILIES
        for k in options["ks"]
    }
    return reports, comparison


def _columns_of(ids: Iterable[str], columns: dict[str, int]) -> list[int]:
    """Return the column of each label; new labels get new columns."""
    return [columns.setdefault(label, len(columns)) for label in ids]


def _in_columns(found: Predictions, ids: Sequence[str], columns: dict[str, int]) -> Predictions:
    column_of = np.array([*_columns_of(ids, columns), -1], dtype=np.int64)
    # The last entry serves the empty slots, whose index is -1.
    return Predictions.from_unsorted(column_of[found.indices], found.scores)


def _gold(corpus: Corpus, columns: dict[str, int]) -> csr_matrix:
    rows = [_columns_of(labels, columns) for labels in corpus.labels()]
    bounds = np.cumsum([0, *(len(row) for row in rows)])
    flat = np.array([column for row in rows for column in row], dtype=np.int64)
    return csr_matrix((np.ones(len(flat), np.float32), flat, bounds), (len(rows), len(columns)))
