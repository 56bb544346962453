"""Parabel and Bonsai: forests of label trees (Omikuji).

- Omikuji learns from a file in the format of the XMC repository, which is written to a temporary
  folder; it refuses texts without features, so those are skipped in training;
- it predicts one text per call; a text without features gets the labels of the priors.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from glocal.errors import DataError, TrainingError, require
from glocal.lab.baselines.baseline import LinearBaseline, Say, best_of_pairs, row_pairs
from glocal.ranking.predictions import Predictions


class OmikujiTrees(LinearBaseline):
    """Forests of label trees; settings are Omikuji's hyper-parameters, and `beam_size`."""

    def fit_matrix(self, features: Any, positives: Any, folder: Path, say: Say) -> None:
        """Write the texts with features to a file and train on it."""
        omikuji = require("omikuji", extra="baselines", purpose="Parabel and Bonsai")
        parameters = omikuji.Model.default_hyper_param()
        for name, value in self.settings.items():
            if name != "beam_size":
                setattr(parameters, name, value)
        filled = np.flatnonzero(np.diff(features.indptr))
        if not len(filled):
            raise DataError("no training text has a feature, so there is nothing to learn from")
        if skipped := features.shape[0] - len(filled):
            say(f"skipped {skipped:,} texts without features")
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "train.txt"
            _write_xmc(path, features[filled], positives[filled])
            try:
                self.model = omikuji.Model.train_on_data(str(path), parameters, self.threads)
            except RuntimeError as error:
                raise TrainingError(f"Omikuji failed: {error}") from error
        self.model.init_prediction_thread_pool(self.threads)
        self.model.save(str(folder))

    def predict_matrix(self, features: Any, k: int) -> Predictions:
        """Predict row by row."""
        beam_size = self.settings.get("beam_size", 10)
        rows = row_pairs(features)
        predicted = (self.model.predict(row, beam_size=beam_size, top_k=k) for row in rows)
        return best_of_pairs(predicted, k)


def _write_xmc(path: Path, features: Any, positives: Any) -> None:
    from sklearn.datasets import dump_svmlight_file

    with path.open("wb") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {positives.shape[1]}\n".encode())
        dump_svmlight_file(features, positives, file, zero_based=True, multilabel=True)
