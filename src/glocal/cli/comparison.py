"""Two models on the same texts, whose label spaces need not be the same.

The predictions of both are brought into one set of columns: the labels of either model, then the
gold labels neither knows. Models are loaded one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.cli import console
from glocal.ranking.predictions import Predictions

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from glocal.data.corpus import Corpus
    from glocal.metrics.bootstrap import BootstrapResult
    from glocal.predict.evaluation import EvaluationReport

__all__ = ["compare_models"]

FAMILIES = ("P", "nDCG", "R")


def compare_models(
    paths: Sequence[Path],
    corpus: Corpus,
    *,
    options: Mapping[str, Any],
    device: str,
    batch_size: int,
) -> tuple[dict[str, EvaluationReport], dict[str, BootstrapResult]]:
    """The report of each model, and for each metric the second model minus the first.

    Args:
        paths: Two model directories.
        corpus: Labelled texts.
        options: Of `Predictor.evaluate`.
        device: Where to compute.
        batch_size: Texts computed at a time.
    """
    from glocal.predict.evaluation import compare
    from glocal.predict.predictor import Predictor

    columns: dict[str, int] = {}
    reports, predictions = {}, []
    for path in paths:
        predictor = Predictor.load(path, device=device, batch_size=batch_size)
        with console.progress_bar(f"evaluating {path}") as progress:
            found = predictor.predict_for_report(corpus, ks=options["ks"], progress=progress)
        reports[str(path)] = predictor.report(found, corpus, **options)
        predictions.append(_in_columns(found["combined"], predictor.labels.ids, columns))
        del predictor  # gone before the next one is read
    gold = _gold(corpus, columns)
    first, second = predictions
    comparison = {
        f"{family}@{k}": compare(second, first, gold, metric=f"{family}@{k}")
        for family in FAMILIES
        for k in options["ks"]
    }
    return reports, comparison


def _columns_of(ids: Iterable[str], columns: dict[str, int]) -> list[int]:
    """The column of each label; new labels get new columns."""
    return [columns.setdefault(label, len(columns)) for label in ids]


def _in_columns(found: Predictions, ids: Sequence[str], columns: dict[str, int]) -> Predictions:
    column_of = np.array([*_columns_of(ids, columns), -1], dtype=np.int64)
    # The last entry serves the empty slots, whose index is -1.
    return Predictions.from_unsorted(column_of[found.indices], found.scores)


def _gold(corpus: Corpus, columns: dict[str, int]) -> csr_matrix:
    from scipy.sparse import csr_matrix

    rows = [_columns_of(labels, columns) for labels in corpus.labels()]
    bounds = np.cumsum([0, *(len(row) for row in rows)])
    flat = np.array([column for row in rows for column in row], dtype=np.int64)
    return csr_matrix((np.ones(len(flat), np.float32), flat, bounds), (len(rows), len(columns)))
