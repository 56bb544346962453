"""The baseline `glocal demo` prints beside its model: TF-IDF and a linear classifier per label.

Words and character 3- and 4-grams, one linear SVM for each label (scikit-learn's LinearSVC with its
default C), the same training texts, labels and test texts as the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.errors import require
from glocal.predict.predictions import Predictions

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.labels.space import LabelSpace

__all__ = ["linear_baseline"]

CHUNK = 64  # labels whose scores are in memory together
Progress = Callable[[int, int | None], None]


def linear_baseline(
    train: Corpus, test: Corpus, labels: LabelSpace, *, k: int, progress: Progress | None = None
) -> Predictions:
    """Train one linear classifier for each label and give the k best labels of each test text.

    Args:
        train: Training texts.
        test: Texts to tag.
        labels: The label space of `train`.
        k: Labels for each text.
        progress: Called with (labels done, labels in all).
    """
    features, test_features = _features(train, test)
    positives = labels.encode(train).tocsc()[:, : len(labels)]
    best = Predictions(np.empty((len(test), 0), np.int64), np.empty((len(test), 0), np.float32))
    for columns, scores in _label_chunks(features, positives, test_features):
        indices = np.broadcast_to(columns, scores.shape)
        best = Predictions.from_unsorted(
            np.concatenate([best.indices, indices], axis=1),
            np.concatenate([best.scores, scores], axis=1),
            k,
        )
        if progress:
            progress(int(columns[-1]) + 1, len(labels))
    return best


def _features(train: Corpus, test: Corpus) -> tuple[Any, Any]:
    text = require(
        "sklearn.feature_extraction.text", extra="demo", purpose="the demo's TF-IDF baseline"
    )
    from scipy.sparse import hstack

    vectorizers = [
        text.TfidfVectorizer(sublinear_tf=True),
        text.TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 4), min_df=2),
    ]
    train_parts = [vectorizer.fit_transform(train.texts()) for vectorizer in vectorizers]
    test_parts = [vectorizer.transform(test.texts()) for vectorizer in vectorizers]
    return hstack(train_parts).tocsr(), hstack(test_parts).tocsr()


def _label_chunks(
    features: Any, positives: Any, test_features: Any
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Label columns and the test texts' scores for them, (texts, labels of the chunk)."""
    from sklearn.svm import LinearSVC

    def scores_of(column: int) -> np.ndarray[Any, Any]:
        gold = np.zeros(features.shape[0], dtype=bool)
        gold[positives.indices[positives.indptr[column] : positives.indptr[column + 1]]] = True
        if gold.all():  # nothing to tell apart: the label belongs to every text
            return np.full(test_features.shape[0], np.inf, dtype=np.float32)
        classifier = LinearSVC(tol=0.01, random_state=0).fit(features, gold)
        return np.asarray(classifier.decision_function(test_features), dtype=np.float32)

    # liblinear computes outside Python's lock, so threads share the features and use all cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, positives.shape[1], CHUNK):
            columns = np.arange(start, min(start + CHUNK, positives.shape[1]))
            yield columns, np.stack(list(pool.map(scores_of, columns)), axis=1)
