"""Recall of a teacher's scopes, by number of neighbours.

Gold labels outside the label space count as missed. Recall is computed over all gold labels and
over those of each frequency band; parents that were added count as suggested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glocal.arrays import Ints
from glocal.companions.teacher.teacher_model import Teacher
from glocal.companions.teacher.votes import Scopes
from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.progress import Progress, report
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace

KS = (1, 2, 3, 5, 10, 20, 30, 50)
BATCH_TEXTS = 1024


@dataclass(frozen=True)
class ScopeRecall:
    """The recall of scopes of k neighbours.

    Args:
        k: Number of neighbours.
        recall: Share of the gold labels inside the scopes, 0 to 1.
        bands: Recall of the gold labels of each frequency band.
        labels: Mean number of labels in a scope.
        cut: Share of the scopes that are full and may have lost labels.
    """

    k: int
    recall: float
    bands: dict[str, float]
    labels: float
    cut: float

    def to_dict(self) -> dict[str, Any]:
        """Return a plain mapping for JSON."""
        return asdict(self)


def scope_recall(
    teacher: Teacher,
    corpus: Corpus,
    labels: LabelSpace,
    *,
    ks: Sequence[int] = KS,
    bands: Bands | None = None,
    progress: Progress | None = None,
) -> list[ScopeRecall]:
    """Measure the recall of scopes for several numbers of neighbours, with one search.

    Args:
        teacher: The teacher.
        corpus: Texts with gold labels.
        labels: The teacher's label space.
        ks: Numbers of neighbours.
        bands: Frequency bands.
        progress: Called with the texts done and their number.

    Raises:
        DataError: No text has labels.
    """
    bands = Bands() if bands is None else bands
    gold = labels.encode(corpus)
    if not gold.nnz:
        raise DataError("no text has labels, so no recall can be measured", path=corpus.source)
    band_of = np.append(bands.assign(labels.counts), np.full(gold.shape[1] - len(labels), -1))
    sums = {k: np.zeros(2) for k in ks}
    hits = {k: np.zeros(len(bands) + 1) for k in ks}
    for start in range(0, len(corpus), BATCH_TEXTS):
        texts = corpus.texts(start, start + BATCH_TEXTS)
        rows, similarities = teacher.nearest(texts, max(ks))
        for k in ks:
            scopes = teacher.scopes_from(rows[:, :k], similarities[:, :k])
            sums[k] += (scopes.labels >= 0).sum(), (scopes.labels[:, -1] >= 0).sum()
            hits[k] += _hits(gold[start : start + len(texts)], scopes, band_of, n_bands=len(bands))
        report(progress, start + len(texts), len(corpus))
    totals = np.bincount(band_of[gold.indices] + 1, minlength=len(bands) + 1)
    return [
        ScopeRecall(
            k,
            float(hits[k].sum() / gold.nnz),
            {
                name: float(hits[k][band] / max(totals[band], 1))
                for band, name in enumerate(bands.names, 1)
            },
            *(sums[k] / len(corpus)).tolist(),
        )
        for k in ks
    ]


def _hits(gold: Any, scopes: Scopes, band_of: Ints, *, n_bands: int) -> Ints:
    """Return the number of gold labels inside the scopes by band; first those in no band."""
    texts, ranks = np.nonzero(scopes.labels >= 0)
    width = max(gold.shape[1], int(scopes.labels.max(initial=0)) + 1)
    suggested = np.unique(texts * width + scopes.labels[texts, ranks])
    owners = np.repeat(np.arange(gold.shape[0]), np.diff(gold.indptr))
    # Columns past the label space are unseen gold in `gold` and parents in the scopes.
    known = band_of[gold.indices] >= 0
    found = np.isin(owners[known] * width + gold.indices[known], suggested, assume_unique=True)
    return np.bincount(band_of[gold.indices[known]][found] + 1, minlength=n_bands + 1)
