"""One linear support vector machine for each label (scikit-learn's LinearSVC, which is liblinear).

- labels are learned in parallel threads, since liblinear releases Python's lock;
- weights nearer to 0 than `prune` are dropped as soon as a label is learned (as in DiSMEC), so that
  no dense (features × labels) matrix is ever held;
- scikit-learn scores a label without positives at 0, above most margins: such a label is never
  predicted here; one that every training text has comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats32
from glocal.data.atomic import atomic_write
from glocal.lab.baselines.baseline import LinearBaseline, Say
from glocal.metrics.topk_order import sort_topk
from glocal.progress import report
from glocal.ranking.predictions import Predictions

LABELS_PER_MESSAGE = 64
SCORES_AT_A_TIME = 1 << 22  # elements of a dense block of texts × labels

Weights = tuple[NDArray[np.int32], Floats32, float]


class LinearSVM(LinearBaseline):
    """One classifier for each label; settings are those of LinearSVC, and `prune`."""

    def fit_matrix(self, features: Any, positives: Any, folder: Path, say: Say) -> None:
        """Learn every label."""
        columns, values, self.bias = [], [], np.empty(self.n_labels, dtype=np.float32)
        settings = {"random_state": self.seed, **self.settings}
        learned = _learn_labels(features, positives, settings, self.threads)
        for label, (kept, weights, bias) in enumerate(learned):
            columns.append(kept)
            values.append(weights)
            self.bias[label] = bias
            self._report(label + 1, say)
        self.weights = _matrix(columns, values, features.shape[1])
        self._save(folder / "model.safetensors")

    def _report(self, done: int, say: Say) -> None:
        report(self.progress, done, self.n_labels)
        if not done % LABELS_PER_MESSAGE or done == self.n_labels:
            share = 100 * done / self.n_labels
            say(f"{share:.1f} % ({done:,} of {self.n_labels:,} labels)")

    def predict_matrix(self, features: Any, k: int) -> Predictions:
        """Return the margins of the best labels, block by block."""
        rows = max(1, SCORES_AT_A_TIME // max(1, self.n_labels))
        parts = [
            self._best(features[start : start + rows], k)
            for start in range(0, features.shape[0], rows)
        ]
        return Predictions.concat(parts)

    def _best(self, features: Any, k: int) -> Predictions:
        scores = (features @ self.weights).toarray() + self.bias  # (block, labels)
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(scores, best, axis=1)
        best = np.where(found == -np.inf, -1, best)  # a label never seen
        return Predictions(*sort_topk(best, found))

    def _save(self, path: Path) -> None:
        from safetensors.numpy import save

        arrays = {
            "indptr": self.weights.indptr,
            "indices": self.weights.indices,
            "values": self.weights.data,
            "bias": self.bias,
        }
        with atomic_write(path) as file:
            file.write(save(arrays))


def _learn_labels(
    features: Any, positives: Any, settings: Mapping[str, Any], threads: int
) -> Iterator[Weights]:
    """Yield the weights of each label, in order."""
    from sklearn.svm import LinearSVC

    options = dict(settings)
    prune = options.pop("prune", 0.0)
    by_label = positives.tocsc()
    nothing = np.empty(0, np.int32), np.empty(0, np.float32)

    def learn(label: int) -> Weights:
        gold = np.zeros(features.shape[0], dtype=bool)
        gold[by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]] = True
        if gold.all() or not gold.any():  # only one class
            return *nothing, np.inf if gold.any() else -np.inf
        model = LinearSVC(**options).fit(features, gold)
        kept = np.flatnonzero(np.abs(model.coef_[0]) > prune).astype(np.int32)
        return kept, model.coef_[0, kept].astype(np.float32), float(model.intercept_[0])

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(learn, range(by_label.shape[1]))


def _matrix(columns: list[NDArray[np.int32]], values: list[Floats32], n_features: int) -> Any:
    """Make a CSR matrix (features, labels) from the kept weights of each label."""
    from scipy.sparse import csc_matrix

    bounds = np.cumsum([0, *(len(kept) for kept in columns)])
    parts = (np.concatenate(values), np.concatenate(columns), bounds)
    return csc_matrix(parts, shape=(n_features, len(columns))).tocsr()
