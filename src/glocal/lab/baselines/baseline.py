"""The interface of baselines: learn from texts with labels, return the best labels of texts.

- labels come as columns of a `LabelSpace` that holds training labels alone, so that a label without
  training texts cannot be predicted;
- linear baselines share one kind of features (`TextFeatures`) and see matrices only;
- the model is saved in the folder it was fitted into, in the library's own format.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glocal.data.corpus import Corpus
from glocal.lab.baselines.tfidf import TextFeatures
from glocal.progress import Progress
from glocal.ranking.predictions import Predictions

Say = Callable[[str], None]


def silent(text: str) -> None:
    """Ignore a message."""


@dataclass(frozen=True)
class ProcessCost:
    """The cost of another process that a baseline works in.

    Attributes:
        cpu_seconds: Processor time up to now.
        peak_bytes: Most memory held at once.
    """

    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(eq=False)
class Baseline(ABC):
    """A method of another library.

    Args:
        settings: Settings by the library's own names.
        threads: Threads it may use.
        seed: Random seed, where the library takes one.
    """

    settings: Mapping[str, Any]
    threads: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    feature_seconds: float | None = field(default=None, init=False)
    elsewhere: ProcessCost = field(default_factory=ProcessCost, init=False)

    @abstractmethod
    def fit(self, train: Corpus, positives: Any, folder: Path, say: Say = silent) -> None:
        """Learn, and save the model in a folder.

        Args:
            train: The texts.
            positives: Their labels, CSR (texts, labels).
            folder: Folder for the model; made if it does not exist.
            say: Receives messages; a percentage in one is shown as progress.
        """

    @abstractmethod
    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """Return the best k labels of each text, or all where there are fewer."""


@dataclass(eq=False)
class LinearBaseline(Baseline):
    """A linear method over TF-IDF features.

    Args:
        settings: Settings by the library's own names.
        threads: Threads it may use.
        seed: Random seed.
        features: The features; words by default.
        progress: Called with (labels done, labels in all), by methods that learn label by label.
    """

    features: TextFeatures = field(default_factory=TextFeatures, kw_only=True)
    progress: Progress | None = field(default=None, kw_only=True)
    n_labels: int = field(default=0, init=False)

    def fit(self, train: Corpus, positives: Any, folder: Path, say: Say = silent) -> None:
        """Fit features and the linear model."""
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        say("counting words")
        matrix = self.features.fit(train)
        self.features.save(folder / "features.parquet")
        self.feature_seconds = time.monotonic() - started
        self.n_labels = positives.shape[1]
        say(f"{matrix.shape[0]:,} texts, {matrix.shape[1]:,} features, {self.n_labels:,} labels")
        self.fit_matrix(matrix, positives, folder, say)

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """Score the features of the texts."""
        return self.predict_matrix(self.features.transform(texts), min(k, self.n_labels))

    @abstractmethod
    def fit_matrix(self, features: Any, positives: Any, folder: Path, say: Say) -> None:
        """Learn from features, CSR (texts, features); rows may be empty."""

    @abstractmethod
    def predict_matrix(self, features: Any, k: int) -> Predictions:
        """Return the best k labels of each row; k is at most the number of labels."""


def row_pairs(matrix: Any) -> Iterator[list[tuple[int, float]]]:
    """Yield the (column, value) pairs of each row of a CSR matrix."""
    columns, values = matrix.indices.tolist(), matrix.data.tolist()
    for start, stop in itertools.pairwise(matrix.indptr.tolist()):
        yield list(zip(columns[start:stop], values[start:stop], strict=True))


def best_of_pairs(rows: Iterable[Iterable[tuple[int, float]]], k: int) -> Predictions:
    """Make predictions from (label, score) pairs of each text; short rows end in empty slots."""
    pairs = [list(row)[:k] for row in rows]
    indices = np.full((len(pairs), k), -1, dtype=np.int64)
    scores = np.full((len(pairs), k), -np.inf, dtype=np.float32)
    for place, row in enumerate(pairs):
        if row:
            indices[place, : len(row)], scores[place, : len(row)] = zip(*row, strict=True)
    return Predictions.from_unsorted(indices, scores)
