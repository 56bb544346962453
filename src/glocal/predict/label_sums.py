"""The sum of a text's probabilities over all labels, which should be its number of gold labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glocal.data.corpus import Corpus
from glocal.metrics.reliability import LabelSums

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

_MOST_TEXTS, _FEWEST_TEXTS = 1000, 50
_MOST_LABELS, _PAIRS, _PAIRS_AT_A_TIME = 50_000, 20_000_000, 4_000_000


def label_sums(predictor: Predictor, corpus: Corpus) -> LabelSums | None:
    """Score all labels of a sample of texts; None if no text has gold labels.

    Args:
        predictor: The model.
        corpus: Texts with gold labels.
    """
    n_labels = len(predictor.labels)
    gold = predictor.labels.encode(corpus)
    (labelled,) = np.nonzero(np.diff(gold.indptr))
    width = min(n_labels, _MOST_LABELS)
    count = min(len(labelled), _MOST_TEXTS, max(_FEWEST_TEXTS, _PAIRS // width))
    if not count:
        return None
    sample = np.sort(np.random.default_rng(0).permutation(labelled)[:count])
    total, at_a_time = 0.0, max(1, _PAIRS_AT_A_TIME // width)
    for start in range(0, count, at_a_time):
        texts = corpus.take(sample[start : start + at_a_time]).texts()
        scores = predictor.predict(texts, k=width).scores
        total += float(scores[np.isfinite(scores)].sum(dtype=np.float64))
    inside = gold[sample][:, :n_labels]
    return LabelSums(total / count, inside.nnz / count, count)
