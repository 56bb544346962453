"""A quick baseline for short texts: TF-IDF and one linear SVM for each label.

The baseline `svm` of the registry, with character 3- and 4-grams as well as words.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from glocal.progress import Progress

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.ranking.predictions import Predictions
    from glocal.vocabulary.label_space import LabelSpace

SETTINGS = {"tol": 0.01, "prune": 0.01}


def linear_baseline(
    train: Corpus, test: Corpus, labels: LabelSpace, *, k: int, progress: Progress | None = None
) -> Predictions:
    """Train one linear classifier for each label and return the k best labels of each test text.

    Args:
        train: Training texts.
        test: Texts to tag.
        labels: The label space of `train`.
        k: Labels for each text.
        progress: Called with (labels done, labels in all).
    """
    from glocal.lab.baselines.linear_svm import LinearSVM
    from glocal.lab.baselines.tfidf import TextFeatures

    baseline = LinearSVM(
        SETTINGS,
        threads=os.cpu_count() or 1,
        features=TextFeatures(characters=True, extra="demo"),
        progress=progress,
    )
    positives = labels.encode(train)[:, : len(labels)]
    with tempfile.TemporaryDirectory() as folder:
        baseline.fit(train, positives, Path(folder))
    return baseline.predict(test.texts(), k)
