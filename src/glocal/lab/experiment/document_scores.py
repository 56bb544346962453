"""Scores of each test text, kept so that two results can be compared at any time.

Ranking metrics depend only on the hits of a text and the number of its gold labels, so results
with different label spaces can be compared directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.data.atomic import atomic_write
from glocal.errors import DataError
from glocal.metrics.bootstrap import BootstrapResult, paired_bootstrap
from glocal.metrics.documents import DocumentScores
from glocal.metrics.metric_names import RANKING, MetricName
from glocal.predict.metric_scores import Scorer
from glocal.ranking.predictions import Predictions

FILE = "documents.parquet"
_MEASURED_ON = b"measured_on"


def document_scores(
    found: Predictions, gold: Any, ks: Sequence[int], *, counts: NDArray[np.integer]
) -> dict[str, DocumentScores]:
    """Return the ranking metrics of every text with gold; `counts` are the label space's."""
    scorer = Scorer(gold, depth=max(ks), counts=counts)
    names = [MetricName(family, k) for family in RANKING for k in ks]
    return {str(name): scorer.document_scores(name, found) for name in names}


def save_document_scores(
    folder: Path, scores: Mapping[str, DocumentScores], *, measured_on: str
) -> None:
    """Write the scores into a job's folder.

    Args:
        folder: The job's folder.
        scores: Scores by metric.
        measured_on: Fingerprint of the texts and their gold labels.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: found.numerators for name, found in scores.items()})
    table = table.replace_schema_metadata({_MEASURED_ON: measured_on})
    with atomic_write(folder / FILE) as file:
        pq.write_table(table, file)


def load_document_scores(folder: Path, *, measured_on: str = "") -> dict[str, DocumentScores]:
    """Read the scores of a job's folder, by metric.

    Args:
        folder: The job's folder.
        measured_on: Fingerprint of the texts they must belong to, if any.

    Raises:
        DataError: If there are none, or they belong to other texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / FILE
    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
        found = (table.schema.metadata or {})[_MEASURED_ON].decode()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(
            f"no scores of each text ({type(error).__name__}: {error}); expected the folder of a "
            "baseline or of a benchmark row",
            path=path,
        ) from error
    if measured_on not in ("", found):
        raise DataError(
            "measured on different test texts or labels, so texts cannot be compared one by one; "
            "measure both on the same file",
            path=path,
        )
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: DocumentScores.mean(column.to_numpy()) for name, column in columns}


def compare_folders(first: Path, second: Path, *, measured_on: str) -> dict[str, BootstrapResult]:
    """Compare two folders by paired bootstrap: the first minus the second, by metric.

    Raises:
        DataError: If they were not both measured on the texts of this fingerprint.
    """
    a, b = (load_document_scores(folder, measured_on=measured_on) for folder in (first, second))
    return {metric: paired_bootstrap(a[metric], b[metric]) for metric in a if metric in b}
