"""The scores of each test document of a row, kept so that rows can be compared at any time.

Ranking metrics depend on the hits of a document and the number of its gold labels alone, so rows
with different label spaces compare as they are.
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

__all__ = [
    "compare_folders",
    "document_scores",
    "load_comparable",
    "load_document_scores",
    "save_document_scores",
]

FILE = "documents.parquet"
_MEASURED_ON = b"measured_on"


def document_scores(
    found: Predictions, gold: Any, ks: Sequence[int], *, counts: NDArray[np.integer]
) -> dict[str, DocumentScores]:
    """The ranking metrics of every document with gold; `counts` are those of the label space."""
    scorer = Scorer(gold, depth=max(ks), counts=counts)
    names = [MetricName(family, k) for family in RANKING for k in ks]
    return {str(name): scorer.document_scores(name, found) for name in names}


def save_document_scores(
    folder: Path, scores: Mapping[str, DocumentScores], *, measured_on: str
) -> None:
    """Write the scores beside a row's predictions.

    Args:
        folder: The row's.
        scores: By metric; means over the documents.
        measured_on: Hash of the texts and their gold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: found.numerators for name, found in scores.items()})
    table = table.replace_schema_metadata({_MEASURED_ON: measured_on})
    with atomic_write(folder / FILE) as file:
        pq.write_table(table, file)


def load_document_scores(folder: Path) -> tuple[dict[str, DocumentScores], str]:
    """What `save_document_scores` wrote: the scores by metric, and the hash.

    Raises:
        DataError: When there is none that can be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / FILE
    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
        measured_on = (table.schema.metadata or {})[_MEASURED_ON].decode()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(
            f"no scores of each document ({type(error).__name__}: {error}); `glocal baseline` and "
            "`glocal benchmark` write them",
            path=path,
        ) from error
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: DocumentScores.mean(column.to_numpy()) for name, column in columns}, measured_on


def compare_folders(first: Path, second: Path) -> dict[str, BootstrapResult]:
    """The first row minus the second for every metric both have, by paired bootstrap.

    Raises:
        DataError: When they were measured on different texts.
    """
    a, measured_on = load_document_scores(first)
    b = load_comparable(second, measured_on)
    return {metric: paired_bootstrap(a[metric], b[metric]) for metric in a if metric in b}


def load_comparable(folder: Path, measured_on: str) -> dict[str, DocumentScores]:
    """A row's scores by metric, of the texts and labels of this hash.

    Raises:
        DataError: When there are none, or they are of other texts.
    """
    scores, hashed = load_document_scores(folder)
    if hashed != measured_on:
        raise DataError(
            "measured on different test texts or labels, so documents cannot be compared one by "
            "one; measure both rows on the same file",
            path=folder / FILE,
        )
    return scores
