"""fastText with one binary loss for each label (`loss="ova"`).

- reads the same words as the TF-IDF baselines: two characters or more, lower-cased;
- labels are written as their column, and words that look like fastText's labels are removed, so
  that no text can add labels of its own;
- a learning rate at which the loss becomes NaN (on long texts) is halved, and that is logged;
- predicts lists of texts, which works with numpy 2 in every build of the library; its call for one
  text does not.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glocal.data.corpus import Corpus
from glocal.errors import TrainingError, require
from glocal.lab.baselines.baseline import Baseline, Say, best_of_pairs, row_pairs, silent
from glocal.ranking.predictions import Predictions

_WORD = re.compile(r"\b\w\w+\b")
_LABEL = "__label__"
_DEFAULT_RATE = 0.1  # fastText's own
_HALVINGS = 6  # learning rates tried


class FastText(Baseline):
    """A mean of word vectors; settings are those of `fasttext.train_supervised`."""

    def fit(self, train: Corpus, positives: Any, folder: Path, say: Say = silent) -> None:
        """Write the texts that have labels to a file and train on it."""
        fasttext = require("fasttext", extra="baselines", purpose="the fastText baseline")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "train.txt"
            _write_lines(path, train, positives)
            self.model = self._train(fasttext, path, say)
        self.n_labels = positives.shape[1]
        self.model.save_model(str(folder / "model.bin"))

    def _train(self, fasttext: Any, path: Path, say: Say) -> Any:
        settings = {"lr": _DEFAULT_RATE, **self.settings}
        for _ in range(_HALVINGS):
            try:
                return fasttext.train_supervised(
                    str(path),
                    loss="ova",
                    label=_LABEL,
                    thread=self.threads,
                    seed=self.seed,
                    verbose=2,  # its percentages are this baseline's progress
                    **settings,
                )
            except RuntimeError as error:
                if "NaN" not in str(error):
                    raise
                rate, settings["lr"] = settings["lr"], settings["lr"] / 2
                say(f"loss NaN at lr={rate:g}, trying {settings['lr']:g}")
        raise TrainingError(
            f"fastText's loss becomes NaN at every learning rate from "
            f"{settings['lr'] * 2**_HALVINGS:g} to {settings['lr'] * 2:g}"
        )

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """Return the probabilities of the best labels."""
        k = min(k, self.n_labels)
        names, chances = self.model.predict([_line(text) for text in texts], k=k)
        # Sums of float32 may be a little above 1.
        rows = (
            zip((int(n[len(_LABEL) :]) for n in row), np.clip(p, 0.0, 1.0).tolist(), strict=True)
            for row, p in zip(names, chances, strict=True)
        )
        return best_of_pairs(rows, k)


def _line(text: str) -> str:
    return " ".join(w for w in _WORD.findall(text.lower()) if not w.startswith(_LABEL))


def _write_lines(path: Path, train: Corpus, positives: Any) -> None:
    texts = (text for block in train.iter_texts() for text in block)
    with path.open("w", encoding="utf-8") as file:
        for text, labels in zip(texts, row_pairs(positives), strict=True):
            if labels:
                names = " ".join(f"{_LABEL}{label}" for label, _ in labels)
                file.write(f"{names} {_line(text)}\n")
